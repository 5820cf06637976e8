/* sender.h: the sending side of one thread.
 *
 *     ol_sender_open(&sender, on_outcome, lane, err);
 *     ol_sender_channel_open(sender, settings, &outlet, err);          // one a destination
 *     ol_sender_channel_submit(outlet, &message, deadline_us, row);    // never waits for the
 * network ol_sender_drive(sender, timeout_ms);                     // on_outcome(lane, row,
 * outcome)
 *
 * A sender and its outlets belong to the thread that opened them; only ol_sender_wake may come
 * from elsewhere. Limits, order, leases and retries are the caller's. */
#ifndef OL_PUBLISH_SENDER_H
#define OL_PUBLISH_SENDER_H

#include "destinations/settings.h"
#include "publish/publisher.h"

struct ol_sender;
struct ol_sender_channel; /* one destination as this thread sees it */

/* `done` gets every outcome, with `user` and the message's tag. It must not call back in here. */
int ol_sender_open(struct ol_sender **out, outlog_publish_done *done, void *user, outlog_err *err);

/* Closes its outlets too. */
void ol_sender_close(struct ol_sender *sender);

/* Open a destination. `settings` must outlive the outlet. -1: they cannot work (a plug-in that does
 * not load, a `from` that is no address); a target that is down is not an error. */
int ol_sender_channel_open(struct ol_sender *sender, const struct ol_settings *settings,
                           struct ol_sender_channel **out, outlog_err *err);

/* Abandons what is in flight (outcomes arrive during the call), then frees it. */
void ol_sender_channel_close(struct ol_sender_channel *outlet);

/* Start one attempt; exactly one outcome follows, perhaps before this returns. Nothing of `message`
 * is needed afterwards. */
void ol_sender_channel_submit(struct ol_sender_channel *outlet,
                              const struct outlog_delivery *message, int64_t deadline_us,
                              void *tag);

/* End one attempt now: RELEASED or surely_not_sent when nothing left, else UNKNOWN. */
void ol_sender_channel_abandon(struct ol_sender_channel *outlet, void *tag);

/* Move everything on; wait up to timeout_ms for the first news. Returns how many outcomes came. */
size_t ol_sender_drive(struct ol_sender *sender, int timeout_ms);

/* What was submitted leaves with the next drive. For whoever has other things to do first: now. */
void ol_sender_flush(struct ol_sender *sender);

/* Readable when a drive would bring something, but from plug-ins that have no descriptor. */
int ol_sender_fd(const struct ol_sender *sender);

/* End the wait of a drive in another thread. */
void ol_sender_wake(struct ol_sender *sender);

size_t ol_sender_in_flight(const struct ol_sender *sender);
size_t ol_sender_channel_in_flight(const struct ol_sender_channel *outlet);
const struct outlog_publisher *ol_sender_channel_publisher(const struct ol_sender_channel *outlet);

#endif
