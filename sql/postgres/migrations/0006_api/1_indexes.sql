-- What the API looks up: the messages of a trace, and what happened lately.
create index outbox_trace on outlog.outbox (correlation_id);
create index batches_lately on outlog.batches (published_at);
create index parked_lately on outlog.parked (published_at) where published_at is not null;
create index parked_troubles on outlog.parked (destination, updated_at)
    where last_error is not null and state in ('PENDING', 'CLAIMED', 'DEAD');
alter table outlog.attempts add column recorded_at timestamptz not null default now();
create index attempts_lately on outlog.attempts (recorded_at) where outcome in ('failed', 'unknown');
