-- name: config_lock()
-- BEGIN IMMEDIATE is the lock.
select 1
