-- Export and import: what stands beside the events and must move with them. Every list is read in
-- pages after its key; writing is for a store that is still empty.

-- name: archive_last()
select coalesce(max(event_id), 0) from outlog.events

-- name: archive_event_id(event_id)
select id::text from outlog.events where event_id = :event_id

-- name: archive_in_use()
-- Heads are written by appends, and by an import only at its end.
select count(*) from (select 1 from outlog.heads limit 1) h

-- name: archive_open_messages()
select count(*) from outlog.outbox_state where state <> 'PUBLISHED'

-- name: archive_heads()
insert into outlog.heads (org_key, aggregate_type, aggregate_id, aggregate_seq)
select coalesce(org_id, ''), aggregate_type, aggregate_id, max(aggregate_seq)
  from outlog.events group by coalesce(org_id, ''), aggregate_type, aggregate_id

-- name: archive_record_list(org_key, actor_id, endpoint, idempotency_key, limit literal)
select org_key, actor_id, endpoint, idempotency_key, request_hash, response, created_at
  from outlog.idempotency_records
 where (org_key, actor_id, endpoint, idempotency_key) > (:org_key, :actor_id, :endpoint, :idempotency_key)
   and response is not null
 order by org_key, actor_id, endpoint, idempotency_key limit :limit

-- name: archive_record_put(org_key, actor_id, endpoint, idempotency_key, request_hash, response, created_at)
insert into outlog.idempotency_records (org_key, actor_id, endpoint, idempotency_key, request_hash, response, created_at)
values (:org_key, :actor_id, :endpoint, :idempotency_key, :request_hash, :response, :created_at)

-- name: archive_key_list(org_key, destination, idempotency_key, limit literal)
-- Keys of messages, those that are there and those that retention has removed.
select org_key, destination, idempotency_key, event_id, kept_at from (
    select coalesce(org_id, '') as org_key, destination, idempotency_key, event_id::text, created_at as kept_at
      from outlog.outbox where idempotency_key is not null
    union all
    select org_key, destination, idempotency_key, event_id::text, kept_at from outlog.outbox_keys) k
 where (org_key, destination, idempotency_key) > (:org_key, :destination, :idempotency_key)
 order by org_key, destination, idempotency_key limit :limit

-- name: archive_key_put(org_key, destination, idempotency_key, event_id, kept_at)
insert into outlog.outbox_keys (org_key, destination, idempotency_key, event_id, kept_at)
values (:org_key, :destination, :idempotency_key, :event_id::uuid, :kept_at)

-- name: archive_consumer_list(name, limit literal)
select name, cursor_event_id, filters::text, created_at, updated_at from outlog.consumers
 where name > :name order by name limit :limit

-- name: archive_consumer_put(name, cursor_event_id, filters, created_at, updated_at)
insert into outlog.consumers (name, cursor_event_id, filters, created_at, updated_at)
values (:name, :cursor_event_id, :filters, :created_at, :updated_at)

-- name: archive_type_list(event_type, limit literal)
select event_type, version, aggregate_type, shape::text, upcast::text, about from outlog.event_types
 where event_type > :event_type order by event_type limit :limit

-- name: archive_type_put(event_type, version, aggregate_type, shape, upcast, about)
-- Those that ship with outlog are there already.
insert into outlog.event_types (event_type, version, aggregate_type, shape, upcast, about)
values (:event_type, :version, :aggregate_type, :shape, :upcast, :about)
on conflict (event_type) do update
   set version = excluded.version, aggregate_type = excluded.aggregate_type, shape = excluded.shape,
       upcast = excluded.upcast, about = excluded.about

-- name: archive_strict_list(org_id, limit literal)
select org_id from outlog.strict_orgs where org_id > :org_id order by org_id limit :limit

-- name: archive_strict_put(org_id)
insert into outlog.strict_orgs (org_id) values (:org_id) on conflict do nothing

-- name: archive_destination_list(name, limit literal)
select name, settings::text, guarantee, on_dead, case when paused then 1 else 0 end, case when is_alert then 1 else 0 end
  from outlog.destinations where name > :name order by name limit :limit

-- name: archive_destination_put(name, settings, guarantee, on_dead, paused, is_alert)
insert into outlog.destinations (name, settings, guarantee, on_dead, paused, is_alert, updated_at)
values (:name, :settings, :guarantee, :on_dead, :paused::bigint = 1, :is_alert::bigint = 1, outlog.after(0))

-- name: archive_route_list(name, limit literal)
select name, pattern, case when is_audit then 1 else 0 end, org_id, aggregate_type, condition::text, destination,
       ordering_key, source::text
  from outlog.routes where name > :name order by name limit :limit

-- name: archive_route_put(name, pattern, is_audit, org_id, aggregate_type, condition, destination, ordering_key, source)
insert into outlog.routes (name, pattern, is_audit, org_id, aggregate_type, condition, destination, ordering_key, source)
values (:name, :pattern, :is_audit::bigint = 1, :org_id, :aggregate_type, :condition, :destination, :ordering_key, :source)

-- name: archive_setting_list(key, limit literal)
select key, value::text from outlog.settings where key > :key order by key limit :limit

-- name: archive_setting_put(key, value)
insert into outlog.settings (key, value, updated_at) values (:key, :value, outlog.after(0))

-- name: archive_sink_list(name, limit literal)
select name, cursor_event_id from outlog.sinks where name > :name order by name limit :limit

-- name: archive_sink_put(name, cursor_event_id)
insert into outlog.sinks (name, cursor_event_id, updated_at) values (:name, :cursor_event_id, outlog.after(0))
