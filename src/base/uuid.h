/* uuid.h: UUIDs, as text and as bytes. */
#ifndef OL_BASE_UUID_H
#define OL_BASE_UUID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OL_UUID_TEXT = 37 };

/* A new UUIDv7 as lower-case text. Within one process later calls sort higher. */
void ol_uuid_make(char out[OL_UUID_TEXT]);

/* Whether `text` is a UUID in the usual 8-4-4-4-12 form; `out` gets it in lower case. */
bool ol_uuid_parse(const char *text, char out[OL_UUID_TEXT]);

void ol_uuid_to_bytes(const char text[OL_UUID_TEXT], uint8_t out[16]);
void ol_uuid_from_bytes(const uint8_t bytes[16], char out[OL_UUID_TEXT]);

#endif
