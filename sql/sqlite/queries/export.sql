-- Events with their own numbers: only for an import into an empty store.

-- name: export_event(event.columns)
insert into outlog_events (
       --=, event columns: {name}
       )
values (
       --=, event columns: :{name}
       )

-- name: export_in_use()
-- Are there events that do not come from an unfinished import?
select coalesce((select max(event_id) from outlog_events), 0) > coalesce((select event_id from outlog_import), 0)

-- name: export_mark(event_id)
-- An import that is interrupted can go on from here.
insert into outlog_import (only, event_id) values (1, :event_id) on conflict do update set event_id = excluded.event_id

-- name: export_heads()
-- The import is finished, and the store in use. Heads are a view.
delete from outlog_import

-- name: export_number(event_id)
-- AUTOINCREMENT follows the inserted numbers.
select :event_id

-- name: export_message_list(lane, seq, limit literal)
select cast(o.lane as text), cast(o.seq as text)
       --= message columns: , o.{name}
       --=| at_most_once: , case when o.at_most_once then 1 else 0 end
       --=| payload_bytes: , iif(o.payload_bytes is null, null, lower(hex(o.payload_bytes)))
  from outlog_outbox o where (o.lane, o.seq) > (cast(:lane as integer), cast(:seq as integer))
 order by o.lane, o.seq limit :limit

-- name: export_message_put(message.columns)
-- payload_bytes is hexadecimal.
insert into outlog_outbox (
       --=, message columns: {name}
       )
values (
       --=, message columns: :{name}
       --=| payload_bytes: outlog_unhex(:payload_bytes)
       )

-- name: export_published_list(lane, seq, limit literal)
-- A message that the first attempt delivered has no row of its own.
select cast(s.lane as text), cast(s.seq as text), s.event_id, coalesce(s.published_at, s.created_at)
  from outlog_outbox_state s left join outlog_parked p on p.lane = s.lane and p.seq = s.seq
 where (s.lane, s.seq) > (cast(:lane as integer), cast(:seq as integer)) and s.state = 'PUBLISHED' and p.seq is null
 order by s.lane, s.seq limit :limit

-- name: export_published_put(event_id, published_at)
insert into outlog_batches (lane, from_seq, to_seq, claimed_by, claimed_at, published_at)
select o.lane, o.seq, o.seq, 'import', :published_at, :published_at
  from outlog_outbox o where o.event_id = :event_id

-- name: export_parked_list(lane, seq, limit literal)
select cast(s.lane as text), cast(s.seq as text), s.event_id, s.state, s.attempts, coalesce(p.unsent, 0),
       coalesce(p.budget_from, 0),
       case when s.held then 1 else 0 end, case when s.is_replay then 1 else 0 end,
       coalesce(s.available_at, s.created_at), s.published_at, s.updated_at, s.last_error
  from outlog_outbox_state s left join outlog_parked p on p.lane = s.lane and p.seq = s.seq
 where (s.lane, s.seq) > (cast(:lane as integer), cast(:seq as integer))
   and not (s.state = 'PUBLISHED' and p.seq is null)
 order by s.lane, s.seq limit :limit

-- name: export_parked_put(event_id, state, attempts, unsent, budget_from, held, is_replay, available_at, published_at, updated_at, last_error)
-- A relay had claimed it: the same as when a relay goes away (rule 3).
insert into outlog_parked (lane, seq, destination, ordering_key, state, held, attempts, unsent, budget_from, is_replay,
       available_at, published_at, updated_at, last_error)
select o.lane, o.seq, o.destination, o.ordering_key,
       case when :state <> 'CLAIMED' then :state
            when o.at_most_once or coalesce(o.max_attempts = 1, 0) then 'DEAD' else 'PENDING' end,
       :held = 1, :attempts,
       :unsent + case when :state = 'CLAIMED'
            and not (o.at_most_once or coalesce(o.max_attempts = 1, 0)) then 1 else 0 end,
       :budget_from, :is_replay = 1, :available_at, :published_at, :updated_at,
       case when :state = 'CLAIMED' then 'outcome unknown: the store was moved meanwhile' else :last_error end
  from outlog_outbox o where o.event_id = :event_id

-- name: export_attempt_list(lane, seq, attempt, limit literal)
select cast(a.lane as text), cast(a.seq as text), cast(a.attempt as text), o.event_id, a.started_at,
       a.duration_ms, a.outcome, a.status,
       case when a.permanent then 1 else 0 end, a.response, a.error, a.claimed_by, a.recorded_at
  from outlog_attempts a join outlog_outbox o on o.lane = a.lane and o.seq = a.seq
 where (a.lane, a.seq, a.attempt) > (cast(:lane as integer), cast(:seq as integer), cast(:attempt as integer))
 order by a.lane, a.seq, a.attempt limit :limit

-- name: export_attempt_put(attempt, event_id, started_at, duration_ms, outcome, status, permanent, response, error, claimed_by, recorded_at)
insert into outlog_attempts (lane, seq, attempt, started_at, duration_ms, outcome, status, permanent, response,
       error, claimed_by, recorded_at)
select o.lane, o.seq, cast(:attempt as integer), :started_at, :duration_ms, :outcome, :status, :permanent = 1,
       :response, :error, :claimed_by, coalesce(:recorded_at, :started_at)
  from outlog_outbox o where o.event_id = :event_id

-- name: export_begin()
-- In this transaction a message may begin in the state that it had in another store.
insert into outlog_modes values ('importing')

-- name: export_done()
delete from outlog_modes where mode = 'importing'
