-- Sessions on the server.

-- name: session_begin() @postgres
-- When this session began, and its process: another than the connection was told of is behind a pooler.
select backend_start::text, pid from pg_stat_activity where pid = pg_backend_pid()

-- name: session_wait() @postgres
-- Locks are waited for 10 s, unless the URL, the role or the database says otherwise.
select set_config('lock_timeout', '10s', false) where current_setting('lock_timeout') = '0'

-- name: session_end(pid, started_at) @postgres
-- Ends a session of ours whose connection was lost, and waits until it is over: 1, or 0 when it is
-- not after 10 s. No row: it is not there any more. A process id alone could be another's by now.
select pg_terminate_backend(pid, 10000)::integer
  from pg_stat_activity
 where pid = :pid and backend_start = :started_at::timestamptz

-- name: session_end_named(name) @postgres
-- The same behind a pooler. A session that works under our name works for the connection we lost: whoever
-- gets it next brings a name of their own. One that is idle has ended what it did.
select pg_terminate_backend(pid, 10000)::integer
  from pg_stat_activity
 where application_name = :name and state <> 'idle' and pid <> pg_backend_pid()

-- name: session_confine(org_id) @postgres
-- From now on this session sees one org. No row: the role is not there, or not ours.
select set_config('outlog.org_id', :org_id, false), set_config('role', 'outlog_tenant', false)
 where exists (select from pg_roles where rolname = 'outlog_tenant' and pg_has_role(oid, 'member'))

-- name: lock_wait(ms)
-- How long this transaction waits for a lock.
select set_config('lock_timeout', :ms::text, true)
