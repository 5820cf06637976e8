-- name: config_lock()
-- Two applies come one after another; readers and appends go on.
lock table outlog.destinations, outlog.routes, outlog.settings in share row exclusive mode
