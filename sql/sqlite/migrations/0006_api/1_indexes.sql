-- What the API looks up: the messages of a trace, and what happened lately.
create index outlog_outbox_trace on outlog_outbox (correlation_id);
create index outlog_batches_lately on outlog_batches (published_at);
create index outlog_parked_lately on outlog_parked (published_at) where published_at is not null;
create index outlog_parked_troubles on outlog_parked (destination, updated_at)
    where last_error is not null and state in ('PENDING', 'CLAIMED', 'DEAD');
alter table outlog_attempts add column recorded_at text;
create index outlog_attempts_lately on outlog_attempts (recorded_at) where outcome in ('failed', 'unknown');
