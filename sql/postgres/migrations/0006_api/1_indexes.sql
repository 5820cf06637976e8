-- What the API looks up: the messages of a trace.
create index outbox_trace on outlog.outbox (correlation_id);
