-- Every message with its current state, as if it were columns (S1). A lookup by id is a few index
-- probes; counts come from lanes and parked, never from here.
create view outlog_outbox_state as
select
       --= message shown: o.{name},
       --=| state: case when p.seq is not null then p.state when o.seq > l.head then 'PENDING'
       --=+      when o.seq between l.claim_from and l.claim_to then 'CLAIMED' else 'PUBLISHED' end as state,
       --=| attempts: case when p.seq is not null then p.attempts when o.seq > l.head then 0 else 1 end as attempts,
       --=| available_at: coalesce(p.available_at, o.available_at) as available_at,
       --=| updated_at: coalesce(p.updated_at, case when o.seq > l.head then null
       --=+      when o.seq between l.claim_from and l.claim_to then l.claimed_at
       --=+      else (select b.published_at from outlog_batches b where b.to_seq >= o.seq and b.from_seq <= o.seq
       --=+             order by b.to_seq limit 1) end, o.created_at) as updated_at,
       --=| claimed_at: case when p.seq is not null then p.claimed_at
       --=+      when o.seq between l.claim_from and l.claim_to then l.claimed_at end as claimed_at,
       --=| claimed_by: case when p.seq is not null then p.claimed_by
       --=+      when o.seq between l.claim_from and l.claim_to then l.owner end as claimed_by,
       --=| published_at: case when p.seq is not null then p.published_at
       --=+      when o.seq > l.head or o.seq between l.claim_from and l.claim_to then null
       --=+      else (select b.published_at from outlog_batches b where b.to_seq >= o.seq and b.from_seq <= o.seq
       --=+             order by b.to_seq limit 1) end as published_at,
       --=| last_error: p.last_error,
       --=| error_details: (select json_object('outcome', a.outcome, 'status', a.status, 'error', a.error,
       --=+          'response', a.response, 'permanent', json(iif(a.permanent, 'true', 'false')))
       --=+    from outlog_attempts a where a.seq = o.seq and a.outcome <> 'ok'
       --=+     and a.attempt = (select max(attempt) from outlog_attempts where seq = o.seq)) as error_details,
       --=| result: (select json_object('status', a.status, 'response', a.response) from outlog_attempts a
       --=+   where a.seq = o.seq and a.outcome = 'ok'
       --=+     and a.attempt = (select max(attempt) from outlog_attempts where seq = o.seq)) as result,
       --=| idempotency_key: coalesce(o.idempotency_key, o.event_id) as idempotency_key,
       o.payload, o.payload_bytes, o.lane, o.seq, coalesce(p.held, 0) as held, coalesce(p.is_replay, 0) as is_replay
  from outlog_outbox o
  join outlog_lanes l on l.lane = o.lane
  left join outlog_parked p on p.seq = o.seq;

-- The names of the specification's text of April 2026, for tools that expect them.
create view outlog_open_outbox as
select event_id, event_type, coalesce(payload_bytes, payload) as payload,
       case state when 'CLAIMED' then 'DELIVERING' when 'PUBLISHED' then 'DELIVERED' else state end as status,
       created_at, partition_key, ordering_key, metadata, headers, attempts, last_error, available_at,
       claimed_at as locked_at, claimed_by as locked_by, published_at as delivered_at, updated_at
  from outlog_outbox_state;
