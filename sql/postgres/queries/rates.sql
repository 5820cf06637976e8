-- How large the log is.

-- name: log_bytes()
select pg_total_relation_size('outlog.events')::bigint
