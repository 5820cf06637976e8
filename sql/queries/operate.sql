-- Looking at messages, and what operators do to them. Every change happens after lane_touch, in the
-- same transaction (rule 1): the relay then sees another parked_gen and plans again.

-- part: asked_for(m, d)
-- The filters of an operator; d is the table whose destination is compared.
   and d.destination = :destination --? destination
   and m.event_type = :event_type   --? event_type
   and m.created_at >= :since       --? since
   and m.created_at < :until        --? until

-- name: lane_list()
select lane, owner_name, owner, head, lease_until, epoch, parked_gen, claimed_at from outlog.lanes order by lane

-- name: lane_newest(lane)
select coalesce(max(seq), 0) from outlog.outbox where lane = :lane

-- name: message_near(lane, seq)
-- For finding a time by halving: numbers and times grow together.
select seq, created_at from outlog.outbox where lane = :lane and seq >= :seq order by seq limit 1

-- name: messages_of_trace(correlation_id, limit literal)
-- By an index of its own; a trace has few messages.
select lane, seq from outlog.outbox where correlation_id = :correlation_id order by created_at, lane, seq limit :limit

-- name: attempt_list(lane, seq)
select attempt, started_at, duration_ms, outcome, status, permanent, response, error, claimed_by
  from outlog.attempts where lane = :lane and seq = :seq order by attempt

-- name: attempt_of_batch(lane, seq)
-- The batch is the attempt of a message without a row of its own (R4). Its side
-- cursor's comes first, and of nested ranges the inner one.
select claimed_at, published_at, claimed_by from (
    select * from (select 1 as rank, b.* from outlog.outbox o join outlog.batches b on b.lane = o.lane
           and b.destination = o.destination and b.org_key = ':' || coalesce(o.org_id, '') and b.to_seq >= o.seq
         where o.lane = :lane and o.seq = :seq order by b.to_seq limit 1) one_org where from_seq <= :seq
    union all
    select * from (select 2 as rank, b.* from outlog.outbox o join outlog.batches b on b.lane = o.lane
           and b.destination = o.destination and b.org_key = '' and b.to_seq >= o.seq
         where o.lane = :lane and o.seq = :seq order by b.to_seq limit 1) one_destination where from_seq <= :seq
    union all
    select * from (select 3 as rank, b.* from outlog.batches b
         where b.lane = :lane and b.destination = '' and b.org_key = '' and b.to_seq >= :seq and b.from_seq <= :seq
         order by b.to_seq limit 1) whole_lane) found
 order by rank limit 1

-- name: dead_after(lane, after, upto, limit literal, destination?, event_type?, since?, until?)
-- Dead letters in the order they were made.
select o.event_id, p.seq
  from outlog.parked p join outlog.outbox o on o.lane = p.lane and o.seq = p.seq
 where p.state = 'DEAD' and p.lane = :lane and p.seq > :after and p.seq <= :upto
   and p.destination = :destination   --? destination
   and o.event_type = :event_type     --? event_type
   and o.created_at >= :since         --? since
   and o.created_at < :until          --? until
 order by p.seq limit :limit

-- name: parked_replay(lane, seq)
-- A published message of the plain path gets its row: it was sent once, and that is not forgotten.
insert into outlog.parked (lane, seq, destination, ordering_key, state, attempts, budget_from, is_replay,
       available_at, updated_at)
select o.lane, o.seq, o.destination, o.ordering_key, 'PENDING', 1, 1, true, outlog.after(0), outlog.after(0)
  from outlog.outbox o where o.lane = :lane and o.seq = :seq

-- name: parked_requeue(lane, seq, state)
-- Only from the state it was seen in. attempts stays, the budget starts again.
update outlog.parked
   set state = 'PENDING', budget_from = attempts - unsent, last_error = null, held = false,
       is_replay = is_replay or state = 'PUBLISHED', available_at = outlog.after(0), published_at = null,
       updated_at = outlog.after(0)
 where lane = :lane and seq = :seq and state = :state

-- name: parked_waiting(lane, seq)
-- A message that no relay has come to yet gets a row, so that it can be killed.
insert into outlog.parked (lane, seq, destination, ordering_key, state, attempts, available_at, updated_at)
select o.lane, o.seq, o.destination, o.ordering_key, 'PENDING', 0, coalesce(o.available_at, o.created_at),
       outlog.after(0)
  from outlog.outbox o where o.lane = :lane and o.seq = :seq

-- name: parked_kill_begin(lane, seq, operator)
-- The first half of a kill: PENDING becomes DEAD through CLAIMED only. No attempt is made.
update outlog.parked
   set state = 'CLAIMED', claimed_by = :operator, claimed_at = outlog.after(0), lease_until = outlog.after(0)
 where lane = :lane and seq = :seq and state = 'PENDING'

-- name: parked_kill_end(lane, seq, operator, last_error)
-- The second half. The key does not wait: a person has decided.
update outlog.parked
   set state = 'DEAD', claimed_by = null, claimed_at = null, lease_until = null, last_error = :last_error,
       updated_at = outlog.after(0)
 where lane = :lane and seq = :seq and state = 'CLAIMED' and claimed_by = :operator

-- name: parked_release(lane, seq)
-- The key goes on, the message stays DEAD (rule 17).
update outlog.parked set held = false, updated_at = outlog.after(0)
 where lane = :lane and seq = :seq and state = 'DEAD' and held

-- name: parked_make_due(lane, destination, limit literal)
-- What waits for its time is due now (L6).
update outlog.parked set available_at = outlog.after(0), updated_at = outlog.after(0)
 where lane = :lane and seq in (
       select seq from outlog.parked
        where lane = :lane and state = 'PENDING' and destination = :destination and available_at > outlog.after(0)
        limit :limit)

-- name: relay_list()
select run, name, started_at, heartbeat_at from outlog.relays order by name, run

-- name: breaker_list()
-- As the relays that are there see them; an open one before a half open one.
select b.destination, max(b.state), min(b.updated_at), min(b.retry_at)
  from outlog.breakers b join outlog.relays r on r.run = b.run
 where b.state <> 'unusable' group by b.destination

-- name: dead_groups(destination?)
-- Dead letters by destination and error.
select destination, last_error, count(*), min(updated_at), max(updated_at), sum(case when held then 1 else 0 end)
  from outlog.parked
 where state = 'DEAD'
   and destination = :destination --? destination
 group by destination, last_error
