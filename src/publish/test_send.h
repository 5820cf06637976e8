/* test_send.h: sends one test message to a destination, without the outbox. */
#ifndef OL_PUBLISH_TEST_SEND_H
#define OL_PUBLISH_TEST_SEND_H

#include "base/buf.h"
#include "log/log.h"
#include "outlog_publisher.h"

struct ol_test_send {
    bool is_over;
    struct outlog_outcome outcome;
    char error[400];
};

/* Send one message of type outlog.test from this process. `payload` NULL: a sample that the
 * destination's type can send. Waits up to the destination's timeout.
 * OUTLOG_NOT_FOUND: there is no such destination. */
int ol_test_send_run(outlog *log, const char *name, const char *payload, struct ol_test_send *out,
                     outlog_err *err);

/* {outcome, status, duration_ms, error} */
void ol_test_send_json(const struct ol_test_send *test, struct ol_buf *out);

/* ok, failed, unknown, released */
const char *ol_test_send_outcome(const struct ol_test_send *test);

#endif
