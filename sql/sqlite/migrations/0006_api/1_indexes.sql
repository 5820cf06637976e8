-- What the API looks up: the messages of a trace.
create index outlog_outbox_trace on outlog_outbox (correlation_id);
