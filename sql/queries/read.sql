-- Reading the log.

-- part: wanted()
-- What a filter may ask of an event, and that the server is the one that gave the settled position.
   and (select outlog.is_server(:server::bigint))   --? server
   and org_id is null                     --? infrastructure
   --= event filters: and {name} = :{name}   --? {name}
   and coalesce(org_id, '') = :org_key    --? org_key
   and coalesce(occurred_at, occurred_at) >= :since   --? since
   and coalesce(occurred_at, occurred_at) < :until    --? until

-- name: events_read(after, upto, limit literal, server? steady, infrastructure?, event.filters?, since?, until?, org_key?) @replan
-- Settled events in order; every filter has an index that ends in event_id. Reads: events.
-- coalesce keeps two conditions from the planner. Times: they are a range of event_ids already
-- (events_window), and a read of one org must not cost all orgs'. And org_key, the org of an
-- aggregate or a correlation: before the first ANALYZE all indexes look alike, and the org's is the
-- widest.
select
       --=, event columns: {name}
  from outlog.events
 where event_id > :after and event_id <= :upto
   --+ wanted()
 order by event_id
 limit :limit

-- name: events_read_back(before, from, limit literal, server? steady, infrastructure?, event.filters?, since?, until?, org_key?) @replan
-- The same from the other end, the newest first: the same indexes, walked backwards.
select
       --=, event columns: {name}
  from outlog.events
 where event_id < :before and event_id > :from
   --+ wanted()
 order by event_id desc
 limit :limit

-- name: events_read_some(after, upto, limit literal, server? steady, event.some?)
-- All settled events, but only the fields that are asked for: the store does not read the others.
select
       --=, event always: {name}
     --= event some: , {name}   --? {name}
  from outlog.events
 where event_id > :after and event_id <= :upto
   and (select outlog.is_server(:server::bigint))   --? server
 order by event_id
 limit :limit

-- name: event_get(id?, event_id?)
select
       --=, event columns: {name}
  from outlog.events
 where true
   and id = :id::uuid         --? id
   and event_id = :event_id   --? event_id

-- name: events_window(server?, since?, until?)
-- The range of event_ids that holds every event of a time window (E8), from the time index alone.
-- + 0: else the planner walks the primary key from the beginning of time to find the smallest.
select min(event_id + 0), max(event_id + 0)
  from outlog.events
 where true
   and (select outlog.is_server(:server::bigint))   --? server
   and occurred_at >= :since   --? since
   and occurred_at < :until    --? until

-- name: log_newest()
-- The epoch that the log is in.
select log_id::text, began_after, epoch, reason, began_at from outlog.log_epochs order by epoch desc limit 1

-- name: causality_up(id, limit literal)
-- From an event to its root (T3). A cause is always older, so this ends.
-- It carries whole rows: the planner overrates the cost of joining the log again at the end.
with recursive chain as (
    select e.*, 0 as depth from outlog.events e where e.id = :id::uuid
    union all
    select cause.*, chain.depth + 1
      from chain join outlog.events cause on cause.id = chain.causation_id)
select
       --= event columns: {name},
       depth
  from chain order by depth limit :limit

-- name: causality_down(id, limit literal)
-- The tree of what an event caused, each event after its cause (T3).
with recursive tree as (
    select e.*, 0 as depth from outlog.events e where e.id = :id::uuid
    union all
    select e.*, tree.depth + 1 from tree join outlog.events e on e.causation_id = tree.id)
select
       --= event columns: {name},
       depth
  from tree order by event_id limit :limit

-- name: event_cause(id?, event_id?)
-- What an effect must know of its cause.
select id, org_id, correlation_id
  from outlog.events
 where true
   and id = :id::uuid                 --? id
   and event_id = :event_id::bigint   --? event_id

-- name: event_first(id)
-- The event that has this id already, to compare a repeat with it.
select event_id, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type, event_version,
       occurred_at, correlation_id, payload
  from outlog.events where id = :id::uuid
