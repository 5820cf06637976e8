-- Projections: the statements that are PostgreSQL's own.

-- name: projector_session(timeout_ms)
-- A hanging session must release the checkpoint before its lease ends. Statements of the user are
-- planned with PostgreSQL's defaults: the settings of the library's own reads are not for them.
select set_config('idle_in_transaction_session_timeout', :timeout_ms::text, false),
       set_config('lock_timeout', :timeout_ms::text, false),
       set_config('enable_seqscan', 'on', false), set_config('enable_bitmapscan', 'on', false)

-- name: projection_refuse_filled(tables) @postgres
select outlog.projection_refuse_filled(:tables)

-- name: projection_clear(tables) @postgres
select outlog.projection_clear(:tables)

-- name: projection_aside(build) @postgres
select outlog.projection_aside(:build)

-- name: projection_aside_drop(build) @postgres
select outlog.projection_aside_drop(:build)

-- name: projection_swap(build, tables, event_id) @postgres
select outlog.projection_swap(:build, :tables, :event_id)

-- name: shadow_unlisted(tables)
-- Something `create` made that the swap cannot move; no row, or null, when there is nothing.
select outlog.projection_stranger(:tables)

-- name: projection_has(name) @postgres
select (to_regclass(format('%I.%I', current_schema(), :name::text)) is not null)::integer

-- name: transactions_open()
-- Transactions of this database that are open now. One with an old snapshot would see the shadow
-- tables half empty: the swap waits for these.
select coalesce(json_agg(l.virtualtransaction), '[]')::text
  from pg_locks l join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'virtualxid' and a.datname = current_database() and a.backend_type = 'client backend'
   and a.pid <> pg_backend_pid()

-- name: transactions_left(list)
select count(*) from pg_locks l
 where l.locktype = 'virtualxid' and l.virtualtransaction in (select json_array_elements_text(:list::json))

-- name: type_names(list) @postgres
-- The names of types, in the order of the list.
select format_type(value::oid, null)
  from json_array_elements_text(:list::json) with ordinality as t (value, at)
 order by at
