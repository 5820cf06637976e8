/* sender.h: the sending side of one thread.
 *
 *     ol_sender_open(&sender, on_outcome, lane, err);
 *     ol_sender_channel_open(sender, settings, &channel, err);        // one per destination
 *     ol_sender_channel_submit(channel, &message, deadline_us, row);  // does not wait
 *     ol_sender_drive(sender, timeout_ms);                            // calls on_outcome
 *
 * A sender and its channels belong to the thread that opened them. Limits, order, leases and
 * retries are the caller's. */
#ifndef OL_PUBLISH_SENDER_H
#define OL_PUBLISH_SENDER_H

#include "destinations/settings.h"
#include "publish/publisher.h"

struct ol_sender;
struct ol_sender_channel; /* this thread's side of one destination */

/* `done` gets every outcome, with `user` and the message's tag. It must not call back in here. */
int ol_sender_open(struct ol_sender **out, outlog_publish_done *done, void *user, outlog_err *err);

/* Closes its channels too. */
void ol_sender_close(struct ol_sender *sender);

/* Open a destination. `settings` must outlive the channel. -1: they cannot work (a plug-in that
 * does not load, a `from` that is no address). A target that is down is not an error. */
int ol_sender_channel_open(struct ol_sender *sender, const struct ol_settings *settings,
                           struct ol_sender_channel **out, outlog_err *err);

/* Abandons what is in flight, whose outcomes arrive during the call, then frees the channel. */
void ol_sender_channel_close(struct ol_sender_channel *channel);

/* Start one attempt. Exactly one outcome follows, perhaps before this returns. `message` is
 * copied. */
void ol_sender_channel_submit(struct ol_sender_channel *channel,
                              const struct outlog_delivery *message, int64_t deadline_us,
                              void *tag);

/* End one attempt now: RELEASED or surely_not_sent when nothing left, else UNKNOWN. */
void ol_sender_channel_abandon(struct ol_sender_channel *channel, void *tag);

/* Move all attempts on; wait up to timeout_ms for the first outcome. Returns how many arrived. */
size_t ol_sender_drive(struct ol_sender *sender, int timeout_ms);

/* What was submitted leaves with the next drive. Call this to let it leave now. */
void ol_sender_flush(struct ol_sender *sender);

/* Readable when a drive has outcomes; it does not cover plug-ins without a descriptor. */
int ol_sender_fd(const struct ol_sender *sender);

size_t ol_sender_in_flight(const struct ol_sender *sender);
size_t ol_sender_channel_in_flight(const struct ol_sender_channel *channel);
const struct outlog_publisher *ol_sender_channel_publisher(const struct ol_sender_channel *channel);

#endif
