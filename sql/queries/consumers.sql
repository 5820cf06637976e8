-- Named consumers and their durable cursors (C1, C4).

-- name: consumer_get(name)
select name, cursor_event_id, filters, updated_at from outlog.consumers where name = :name

-- name: consumer_list(after, limit literal)
select name, cursor_event_id, filters, updated_at from outlog.consumers
 where name > :after order by name limit :limit

-- name: consumer_reset(name, event_id, now)
-- An explicit command, so the cursor may move back (C4).
update outlog.consumers set cursor_event_id = :event_id, updated_at = :now where name = :name

-- name: consumer_delete(name)
delete from outlog.consumers where name = :name
