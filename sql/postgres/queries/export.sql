-- Events with their own numbers: only for an import into an empty store.

-- name: export_event(event.columns)
insert into outlog.events (
       --=, event columns: {name}
       )
overriding system value
values (
       --=, event columns: :{name}{cast}
       )

-- name: export_in_use()
-- Heads are written by appends, and by an import only at its end.
select count(*) from (select 1 from outlog.heads limit 1) h

-- name: export_mark(event_id)
-- An import that is not finished has no heads.
select :event_id::bigint

-- name: export_heads()
insert into outlog.heads (org_key, aggregate_type, aggregate_id, aggregate_seq)
select coalesce(org_id, ''), aggregate_type, aggregate_id, max(aggregate_seq)
  from outlog.events group by coalesce(org_id, ''), aggregate_type, aggregate_id

-- name: export_number(event_id)
-- The next event follows the last one that came.
select setval('outlog.events_event_id_seq', greatest(:event_id::bigint, 1), :event_id::bigint > 0)

-- name: export_message_list(lane, seq, limit literal)
select o.lane::text, o.seq::text
       --= message columns: , o.{name}
       --=| event_id: , o.event_id::text
       --=| causation_id: , o.causation_id::text
       --=| at_most_once: , case when o.at_most_once then 1 else 0 end
       --=| payload_bytes: , encode(o.payload_bytes, 'hex')
       --=| headers: , o.headers::text
       --=| metadata: , o.metadata::text
  from outlog.outbox o
 where (o.lane, o.seq) > (coalesce(nullif(:lane::text, ''), '0')::smallint,
                          coalesce(nullif(:seq::text, ''), '0')::bigint)
 order by o.lane, o.seq limit :limit

-- name: export_message_put(message.columns)
-- It gets a new place; the order of a key is the order in which its messages come. payload_bytes is
-- hexadecimal.
insert into outlog.outbox (lane, seq
       --= message columns: , {name}
       )
select p.first_lane + h.lane_index, nextval(p.sequences[h.lane_index + 1])
       --= message columns: , :{name}::{type}
       --=| at_most_once: , :at_most_once::bigint = 1
       --=| payload_bytes: , decode(:payload_bytes::text, 'hex')
  from outlog.lane_plan p
 cross join lateral (select ('x' || left(md5(:destination::text || chr(31)
                            || coalesce(:ordering_key::text, left(:event_id::uuid::text, 13))), 7))::bit(28)::int
                            % p.lane_count) h(lane_index)
 where p.is_current

-- name: export_published_list(lane, seq, limit literal)
-- A message that the first attempt delivered has no row of its own.
select s.lane::text, s.seq::text, s.event_id::text, coalesce(s.published_at, s.created_at)
  from outlog.outbox_state s left join outlog.parked p on p.lane = s.lane and p.seq = s.seq
 where (s.lane, s.seq) > (coalesce(nullif(:lane::text, ''), '0')::smallint,
                          coalesce(nullif(:seq::text, ''), '0')::bigint)
   and s.state = 'PUBLISHED' and p.seq is null
 order by s.lane, s.seq limit :limit

-- name: export_published_put(event_id, published_at)
insert into outlog.batches (lane, from_seq, to_seq, claimed_by, claimed_at, published_at)
select o.lane, o.seq, o.seq, 'import', :published_at::timestamptz, :published_at::timestamptz
  from outlog.outbox o where o.event_id = :event_id::uuid

-- name: export_parked_list(lane, seq, limit literal)
select s.lane::text, s.seq::text, s.event_id::text, s.state, s.attempts, coalesce(p.unsent, 0),
       coalesce(p.budget_from, 0),
       case when s.held then 1 else 0 end, case when s.is_replay then 1 else 0 end,
       coalesce(s.available_at, s.created_at), s.published_at, s.updated_at, s.last_error
  from outlog.outbox_state s left join outlog.parked p on p.lane = s.lane and p.seq = s.seq
 where (s.lane, s.seq) > (coalesce(nullif(:lane::text, ''), '0')::smallint,
                          coalesce(nullif(:seq::text, ''), '0')::bigint)
   and not (s.state = 'PUBLISHED' and p.seq is null)
 order by s.lane, s.seq limit :limit

-- name: export_parked_put(event_id, state, attempts, unsent, budget_from, held, is_replay, available_at, published_at, updated_at, last_error)
-- A relay had claimed it: the same as when a relay goes away (rule 3).
insert into outlog.parked (lane, seq, destination, ordering_key, state, held, attempts, unsent, budget_from, is_replay,
       available_at, published_at, updated_at, last_error)
select o.lane, o.seq, o.destination, o.ordering_key,
       case when :state::text <> 'CLAIMED' then :state::text
            when o.at_most_once or coalesce(o.max_attempts = 1, false) then 'DEAD' else 'PENDING' end,
       :held::bigint = 1, :attempts::integer,
       :unsent::integer + case when :state::text = 'CLAIMED'
            and not (o.at_most_once or coalesce(o.max_attempts = 1, false)) then 1 else 0 end,
       :budget_from::integer, :is_replay::bigint = 1, :available_at::timestamptz, :published_at::timestamptz,
       :updated_at::timestamptz,
       case when :state::text = 'CLAIMED' then 'outcome unknown: the store was moved meanwhile'
            else :last_error::text end
  from outlog.outbox o where o.event_id = :event_id::uuid

-- name: export_attempt_list(lane, seq, attempt, limit literal)
select a.lane::text, a.seq::text, a.attempt::text, o.event_id::text, a.started_at, a.duration_ms,
       a.outcome, a.status,
       case when a.permanent then 1 else 0 end, a.response, a.error, a.claimed_by, a.recorded_at
  from outlog.attempts a join outlog.outbox o on o.lane = a.lane and o.seq = a.seq
 where (a.lane, a.seq, a.attempt) > (coalesce(nullif(:lane::text, ''), '0')::smallint,
       coalesce(nullif(:seq::text, ''), '0')::bigint, coalesce(nullif(:attempt::text, ''), '0')::integer)
 order by a.lane, a.seq, a.attempt limit :limit

-- name: export_attempt_put(attempt, event_id, started_at, duration_ms, outcome, status, permanent, response, error, claimed_by, recorded_at)
insert into outlog.attempts (lane, seq, attempt, started_at, duration_ms, outcome, status, permanent, response,
       error, claimed_by, recorded_at)
select o.lane, o.seq, cast(:attempt::text as integer), :started_at::timestamptz, :duration_ms::integer,
       :outcome::text, :status::integer, :permanent::bigint = 1, :response::text, :error::text,
       :claimed_by::text, coalesce(:recorded_at::timestamptz, :started_at::timestamptz)
  from outlog.outbox o where o.event_id = :event_id::uuid

-- name: export_begin()
-- In this transaction a message may begin in the state that it had in another store.
select set_config('outlog.importing', 'on', true)

-- name: export_done()
select set_config('outlog.importing', 'off', true)
