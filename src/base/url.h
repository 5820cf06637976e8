/* url.h: percent decoding. */
#ifndef OL_BASE_URL_H
#define OL_BASE_URL_H

#include <stdbool.h>

/* Decode %XX in place, and + as a space where plus_is_space (in query strings). False when the
 * result is not UTF-8 or contains a NUL. */
bool ol_url_decode(char *text, bool plus_is_space);

#endif
