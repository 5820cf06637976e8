-- Projections, where SQLite has its own words.

-- name: projector_session(timeout_ms)
-- SQLite ends no transaction by itself: ours do nothing but write.
select 1 where :timeout_ms > 0

-- name: live_attach(path) @sqlite
-- On a connection to the shadow file: the user's own file, for tables that are only read.
attach :path as outlog_live

-- name: shadow_attach(path) @sqlite
-- On a connection to the user's own file: the one that was built.
attach :path as outlog_aside

-- name: shadow_detach() @sqlite
detach outlog_aside

-- name: shadow_position() @sqlite
select event_id from outlog_aside.outlog_build

-- name: shadow_unlisted(tables)
-- Something `create` made that the swap cannot copy: triggers would run twice, and other tables
-- are not copied.
select type || ' ' || name from sqlite_master
 where type in ('trigger', 'view')
    or (type = 'table' and name not like 'sqlite%' and name <> 'outlog_build'
        and name not in (select value from json_each(:tables)))
 order by name limit 1

-- name: transactions_open()
-- A reader keeps its snapshot, tables included: there is nobody to wait for.
select '[]'

-- name: transactions_left(list)
select json_array_length(:list)
