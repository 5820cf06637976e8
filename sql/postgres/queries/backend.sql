-- Backends: the server processes of connections.

-- name: backend_identity() @postgres
-- The start time and process id of this backend, and where it was reached: nowhere means by its
-- socket. When libpq knows another process id, the connection goes through a pooler.
select backend_start::text, pid, coalesce(host(inet_server_addr()), ''), current_setting('port')
  from pg_stat_activity where pid = pg_backend_pid()

-- name: backend_place(which literal) @postgres
-- The address of the server that answers. `which` makes two statements of it.
select coalesce(host(inet_server_addr()), 'a socket') || ', port ' || current_setting('port') where :which = :which

-- name: backend_lock_timeout() @postgres
-- Lock waits end after 10 s, unless the URL, the role or the database sets another limit.
select set_config('lock_timeout', '10s', false) where current_setting('lock_timeout') = '0'

-- name: backend_terminate(pid, started_at) @postgres
-- Terminates a backend of ours whose connection was lost, and waits until it has ended: 1, or 0
-- when it still runs after 10 s. No row: it has ended already. Process ids are reused, so
-- the start time must match.
select pg_terminate_backend(pid, 10000)::integer
  from pg_stat_activity
 where pid = :pid and backend_start = :started_at::timestamptz

-- name: backend_terminate_named(name) @postgres
-- The same behind a pooler. A backend that works under our name works for the connection we lost:
-- the next client that gets it sets its own name. An idle backend has finished its transaction.
select pg_terminate_backend(pid, 10000)::integer
  from pg_stat_activity
 where application_name = :name and state <> 'idle' and pid <> pg_backend_pid()

-- name: backend_confine(org_id) @postgres
-- From now on this session sees one org. No row: the role does not exist, or is not granted to us.
select set_config('outlog.org_id', :org_id, false), set_config('role', 'outlog_tenant', false)
 where exists (select from pg_roles where rolname = 'outlog_tenant' and pg_has_role(oid, 'member'))

-- name: lock_wait(ms)
-- How long this transaction waits for a lock.
select set_config('lock_timeout', :ms::text, true)
