-- Sessions on the server.

-- name: session_begin() @postgres
-- When this session began. Locks are waited for 10 s, unless the URL, the role or the database says
-- otherwise.
select backend_start::text,
       case current_setting('lock_timeout') when '0' then set_config('lock_timeout', '10s', false) end
  from pg_stat_activity where pid = pg_backend_pid()

-- name: session_end(pid, started_at) @postgres
-- Ends a session of ours whose connection was lost, and waits until it is over: 1, or 0 when it is
-- not after 10 s. No row: it is not there any more. A process id alone could be another's by now.
select pg_terminate_backend(pid, 10000)::integer
  from pg_stat_activity
 where pid = :pid and backend_start = :started_at::timestamptz

-- name: session_confine(org_id) @postgres
-- From now on this session sees one org. No row: the role is not there, or not ours.
select set_config('outlog.org_id', :org_id, false), set_config('role', 'outlog_tenant', false)
 where exists (select from pg_roles where rolname = 'outlog_tenant' and pg_has_role(oid, 'member'))

-- name: lock_wait(ms)
-- How long this transaction waits for a lock.
select set_config('lock_timeout', :ms::text, true)
