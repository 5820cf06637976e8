-- Owners: the advisory lock that shows that a session lives (docs/lanes.md, rules 26 to 29).

-- name: owner_lock(key) @postgres
-- Locks a new key for the session, and lets the server notice within seconds that the client is
-- gone. Returns whether it has the lock, and the process that serves this session.
select pg_try_advisory_lock(:key)::integer, pg_backend_pid(),
       set_config('tcp_keepalives_idle', '2', false), set_config('tcp_keepalives_interval', '1', false),
       set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '5000', false),
       set_config('client_connection_check_interval', '1000', false)

-- name: owner_beat() @postgres
-- An answer proves that the session lives. Behind a pooler that nobody noticed it is another one.
select pg_backend_pid()

-- name: owner_free(run) @postgres
-- Others whose session has ended. A shared lock for the statement: those who test do not disturb
-- each other.
select run, lock_key, confidence_us from outlog.owners
 where run <> :run and died_at is null and lock_key is not null and lost_key is distinct from lock_key
   and pg_try_advisory_xact_lock_shared(lock_key)
