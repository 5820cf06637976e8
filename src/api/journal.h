/* journal.h: what the server tells its operator, as lines on standard error (M2). */
#ifndef OL_API_JOURNAL_H
#define OL_API_JOURNAL_H

#include "api/request.h"

/* A line for each answer of 5xx and for each change an admin made; nothing else. Never a body, a
 * query, a header or a token. */
void ol_journal_answer(const struct ol_request *request);

#endif
