-- The cursors of consumers.

-- name: consumer_create(name, filters, cursor_event_id, now)
-- A repeat changes nothing: 0 rows.
insert into outlog_consumers (name, filters, cursor_event_id, created_at, updated_at)
values (:name, :filters, :cursor_event_id, :now, :now)
on conflict do nothing

-- name: consumer_commit(name, event_id, now)
-- Forward only: a late commit of an older process changes 0 rows and is reported (C1).
update outlog_consumers set cursor_event_id = :event_id, updated_at = :now
 where name = :name and cursor_event_id < :event_id
