/* url.h: what stands in an address. */
#ifndef OL_BASE_URL_H
#define OL_BASE_URL_H

#include <stdbool.h>

/* Undo %XX in place (and + for a space, as in queries). False when the result is not UTF-8 text, or
 * would hold a NUL. */
bool ol_url_decode(char *text, bool plus_is_space);

#endif
