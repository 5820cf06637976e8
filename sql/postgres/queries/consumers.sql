-- The cursors of consumers, through functions that check: a reader's role may not write the table.

-- name: consumer_create(name, filters, cursor_event_id, now)
-- A repeat changes nothing: 0 rows.
select 1 where outlog.consumer_create(:name, :filters, :cursor_event_id, :now)

-- name: consumer_commit(name, event_id, now)
-- Forward only: a late commit of an older process changes 0 rows and is reported (C1).
select 1 where outlog.consumer_commit(:name, :event_id, :now)
