-- Reading the log.

-- name: events_read(after, upto, limit literal, org_id?, infrastructure?, event_type?, aggregate_type?, aggregate_id?, correlation_id?, app_id?, env_id?, visibility?, since?, until?)
-- Settled events in order; every filter has an index that ends in event_id. Reads: events.
-- upto is kept from the planner (+ 0): a range with two ends looks small to it, and it would rather
-- sort the whole range than walk the index to the limit.
select event_id, id, causation_id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq,
       event_type, event_version, actor_type, actor_id, request_id, idempotency_key, correlation_id,
       app_id, env_id, visibility, metadata, payload
  from outlog.events
 where event_id > :after and event_id + 0 <= :upto
   and org_id = :org_id                   --? org_id
   and org_id is null                     --? infrastructure
   and event_type = :event_type           --? event_type
   and aggregate_type = :aggregate_type   --? aggregate_type
   and aggregate_id = :aggregate_id       --? aggregate_id
   and correlation_id = :correlation_id   --? correlation_id
   and app_id = :app_id                   --? app_id
   and env_id = :env_id                   --? env_id
   and visibility = :visibility           --? visibility
   and occurred_at >= :since              --? since
   and occurred_at < :until               --? until
 order by event_id
 limit :limit

-- name: event_get(id?, event_id?)
select event_id, id, causation_id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq,
       event_type, event_version, actor_type, actor_id, request_id, idempotency_key, correlation_id,
       app_id, env_id, visibility, metadata, payload
  from outlog.events
 where true
   and id = :id::uuid         --? id
   and event_id = :event_id   --? event_id

-- name: events_window(since?, until?)
-- The range of event_ids that holds every event of a time window (E8), from the time index alone.
-- + 0: else the planner walks the primary key from the beginning of time to find the smallest.
select min(event_id + 0), max(event_id + 0)
  from outlog.events
 where true
   and occurred_at >= :since   --? since
   and occurred_at < :until    --? until

-- name: causality_up(id, limit literal)
-- From an event to its root (T3). A cause is always older, so this ends.
with recursive chain(event_id, depth) as (
    select event_id, 0 from outlog.events where id = :id::uuid
    union all
    select cause.event_id, chain.depth + 1
      from chain
      join outlog.events e on e.event_id = chain.event_id
      join outlog.events cause on cause.id = e.causation_id)
select e.event_id, e.id, e.causation_id, e.occurred_at, e.org_id, e.aggregate_type, e.aggregate_id,
       e.aggregate_seq, e.event_type, e.event_version, e.actor_type, e.actor_id, e.request_id,
       e.idempotency_key, e.correlation_id, e.app_id, e.env_id, e.visibility, e.metadata, e.payload,
       chain.depth
  from chain join outlog.events e using (event_id)
 order by chain.depth limit :limit

-- name: causality_down(id, limit literal)
-- The tree of what an event caused, each event after its cause (T3).
with recursive tree(event_id, id, depth) as (
    select event_id, id, 0 from outlog.events where id = :id::uuid
    union all
    select e.event_id, e.id, tree.depth + 1
      from tree join outlog.events e on e.causation_id = tree.id)
select e.event_id, e.id, e.causation_id, e.occurred_at, e.org_id, e.aggregate_type, e.aggregate_id,
       e.aggregate_seq, e.event_type, e.event_version, e.actor_type, e.actor_id, e.request_id,
       e.idempotency_key, e.correlation_id, e.app_id, e.env_id, e.visibility, e.metadata, e.payload,
       tree.depth
  from tree join outlog.events e using (event_id)
 order by e.event_id limit :limit

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
