-- The lane protocol on SQLite: one lane, one writer. A transaction (BEGIN IMMEDIATE) is the lock,
-- so what PostgreSQL does in one statement is several here.

-- name: lane_free(is_safe)
-- The lane if it may be taken: it has no owner, the lease ended, or the owner died. There is one
-- generation of one.
select lane, first_lane, 1 from outlog_lanes
 where owner is null or (lease_until < outlog_after(0) and :is_safe = 1)
    or owner in (select run from outlog_owners where died_at is not null)

-- name: lane_is_sane(lane)
-- Are its numbers ahead of everything that was ever read?
select max(coalesce((select seq from sqlite_sequence where name = 'outlog_outbox'), 0),
           coalesce((select max(seq) from outlog_outbox), 0)) >= head from outlog_lanes where lane = :lane

-- name: server_is_known(lease_us)
-- The clock is this machine's.
select 1 where :lease_us > 0

-- name: lanes_resize(lanes)
-- One writer, one lane.
select 0 where :lanes > 0

-- name: lanes_touch(lanes)
update outlog_lanes set parked_gen = parked_gen + 1 where lane in (select value from json_each(:lanes))

-- name: lane_lock(lane, is_safe)
-- Whether the lane may be taken. 1: its lease has ended. 0: its owner died (rule 24).
select owner is null or (lease_until < outlog_after(0) and :is_safe = 1) from outlog_lanes
 where lane = :lane and (owner is null or (lease_until < outlog_after(0) and :is_safe = 1)
        or owner in (select run from outlog_owners where died_at is not null))

-- name: lane_take(lane, run, name, lease_us)
-- Takes the lane, after lane_lock and lane_park_claim in the same transaction.
update outlog_lanes
   set epoch = epoch + 1, owner = :run, owner_name = :name, lease_until = outlog_after(:lease_us),
       claim_from = null, claim_to = null, claimed_at = null, claim_no = claim_no + 1, parked_gen = parked_gen + 1,
       trouble = null
 where lane = :lane
returning epoch, head, '{}', parked_gen, claim_no, 0

-- name: lane_quarantine(lane, lease_us)
-- Parks the open claim of an owner that ended before its lease, CLAIMED as its own (rule 24).
insert into outlog_parked (lane, seq, destination, ordering_key, state, attempts, unsent, available_at,
       claimed_by, claimed_at, lease_until, updated_at, last_error)
select o.lane, o.seq, o.destination, o.ordering_key, 'CLAIMED', 1,
       case when o.at_most_once or o.max_attempts = 1 then 0 else 1 end, outlog_after(0), l.owner, c.claimed_at,
       outlog_after(coalesce(f.lease_us + f.margin_us, :lease_us)), outlog_after(0),
       'outcome unknown: the relay went away'
  from outlog_open_claims c join outlog_lanes l on l.lane = c.lane join outlog_outbox o on o.seq = c.seq
  left join outlog_owners f on f.run = l.owner
 where l.lane = :lane

-- name: parked_hasten(lane, timeouts)
-- Cuts the leases of what the former owner has on the wire to the time that an attempt may take,
-- and lengthens none (rules 24, 25).
update outlog_parked as p
   set lease_until = min(p.lease_until, outlog_after(w.us)), updated_at = outlog_after(0)
  from (select c.seq, case when t.value ->> 'us' = 0 then 0
                           else min(t.value ->> 'us', f.lease_us) + f.margin_us end as us
          from outlog_lanes l join outlog_owners f on f.run = l.owner
          join outlog_parked c on c.state = 'CLAIMED' and c.claimed_by = l.owner
          join outlog_destinations d on d.name = c.destination and d.updated_at < outlog_after(-f.lease_us)
          join json_each(:timeouts) t on t.value ->> 'destination' = c.destination
         where l.lane = :lane) w
 where p.seq = w.seq

-- name: lanes_cut_leases()
-- A lease that ends later than it is long was written before the clock was set back.
update outlog_lanes as l set lease_until = outlog_after(r.lease_us)
  from outlog_owners r
 where r.run = l.owner and l.lease_until > outlog_after(r.lease_us + 1000000)

-- name: lane_park_claim(lane)
-- First attempts whose outcome nobody knows: due at once, or DEAD where they may not be repeated.
insert into outlog_parked (lane, seq, destination, ordering_key, state, held, attempts, unsent, available_at,
       updated_at, last_error)
select o.lane, o.seq, o.destination, o.ordering_key,
       case when o.at_most_once or o.max_attempts = 1 then 'DEAD' else 'PENDING' end,
       (o.at_most_once or coalesce(o.max_attempts = 1, 0)) and o.ordering_key is not null
       and coalesce((select on_dead = 'hold' from outlog_destinations d where d.name = o.destination), 0),
       1, case when o.at_most_once or o.max_attempts = 1 then 0 else 1 end, outlog_after(0), outlog_after(0),
       'outcome unknown: the relay went away'
  from outlog_open_claims l join outlog_outbox o on o.seq = l.seq
 where l.lane = :lane
returning seq, state

-- name: lane_advance(lane, epoch, parked_gen, claim_no, head, gaps, claim, lease_us)
-- Records the open batch (by trigger) and claims the next. The claim is one range, '{[from,to)}'.
update outlog_lanes
   set head = :head, claim_no = claim_no + 1, lease_until = outlog_after(:lease_us),
       claim_from = case when :claim = '{}' then null else cast(substr(:claim, 3) as integer) end,
       claim_to = case when :claim = '{}' then null
                       else cast(substr(:claim, instr(:claim, ',') + 1) as integer) - 1 end,
       claimed_at = case when :claim = '{}' then null else outlog_after(0) end
 where lane = :lane and epoch = :epoch and parked_gen = :parked_gen and claim_no = :claim_no and :gaps = '{}'
returning ''

-- name: lanes_invalidate()
update outlog_lanes set parked_gen = parked_gen + 1

-- name: lane_release(lane, epoch)
update outlog_lanes set owner = null, owner_name = null, lease_until = null
 where lane = :lane and epoch = :epoch and claim_from is null
   and not exists (select 1 from outlog_side_cursors s where s.lane = :lane and s.claim_from is not null)

-- name: outbox_read(lane, head, limit literal)
select o.seq
       --= message columns: , o.{name}
  from outlog_outbox o where o.lane = :lane and o.seq > :head order by o.seq limit :limit

-- name: lane_poll(lanes)
select l.lane, coalesce((select max(seq) from outlog_outbox), 0), l.epoch, l.parked_gen,
       (select outlog_until(min(available_at)) from outlog_parked where state = 'PENDING'),
       (select outlog_until(min(lease_until)) from outlog_parked where state = 'CLAIMED')
  from outlog_lanes l where l.lane in (select value from json_each(:lanes))

-- name: parked_add(lane, run, rows)
insert into outlog_parked (lane, seq, destination, ordering_key, state, held, attempts, unsent, available_at,
                           claimed_by, claimed_at, lease_until, updated_at, last_error)
select :lane, r.value ->> 'seq', r.value ->> 'destination', r.value ->> 'ordering_key', r.value ->> 'state',
       coalesce(r.value ->> 'held', 0), r.value ->> 'attempts', r.value ->> 'unsent',
       coalesce(r.value ->> 'available_at', outlog_after(r.value ->> 'wait_us')),
       iif(r.value ->> 'state' = 'CLAIMED', :run, null), iif(r.value ->> 'state' = 'CLAIMED', outlog_after(0), null),
       iif(r.value ->> 'state' = 'CLAIMED', outlog_after(r.value ->> 'lease_us'), null), outlog_after(0),
       r.value ->> 'last_error'
  from json_each(:rows) r

-- name: parked_finish(lane, run, rows)
update outlog_parked as p
   set state = r.value ->> 'state', held = coalesce(r.value ->> 'held', 0),
       unsent = max(p.unsent + (r.value ->> 'unsent'), 0),
       claimed_by = null, claimed_at = null, lease_until = null, updated_at = outlog_after(0),
       last_error = coalesce(r.value ->> 'last_error', iif(r.value ->> 'state' = 'PUBLISHED', null, p.last_error)),
       available_at = iif(r.value ->> 'state' = 'PENDING', outlog_after(r.value ->> 'wait_us'), p.available_at),
       published_at = iif(r.value ->> 'state' = 'PUBLISHED', outlog_after(0), null)
  from json_each(:rows) r
 where p.lane = :lane and p.seq = r.value ->> 'seq' and p.state = 'CLAIMED' and p.claimed_by = :run
   and p.attempts = r.value ->> 'attempts'
returning seq

-- name: parked_due(lane, capacity)
-- What is due and first of its key (rule 15), up to the capacity of each destination.
-- Scans the keys of these destinations only: a paused one may have many.
with recursive targets(destination, capacity) as materialized (
    select value ->> 'destination', value ->> 'capacity' from json_each(:capacity)),
k(seq) as (
    select (select p.seq from outlog_parked p where p.destination = r.destination and p.ordering_key is not null
               and (p.state in ('PENDING', 'CLAIMED') or p.held)
             order by p.ordering_key, p.seq limit 1)
      from targets r
    union all
    select (select p.seq from outlog_parked p, outlog_parked q
             where q.seq = k.seq and p.ordering_key is not null and (p.state in ('PENDING', 'CLAIMED') or p.held)
               and p.destination = q.destination and p.ordering_key > q.ordering_key
             order by p.ordering_key, p.seq limit 1)
      from k where k.seq is not null),
heads as (
    select p.seq, p.destination, row_number() over (partition by p.destination order by p.available_at, p.seq) as nth
      from k join outlog_parked p on p.seq = k.seq
     where p.state = 'PENDING' and p.available_at <= outlog_after(0)
       and p.seq <= coalesce(                                         -- lower ones come first
           (select s.head from outlog_side_cursors s join outlog_outbox o on o.seq = p.seq
             where s.lane = p.lane and s.destination = p.destination and s.since < p.seq
               and s.org_key in ('', ':' || coalesce(o.org_id, '')) order by s.org_key desc limit 1),
           (select l.head from outlog_lanes l where l.lane = p.lane))
       and not exists (select 1 from outlog_parked c where c.state = 'CLAIMED' and c.destination = p.destination
                          and c.ordering_key = p.ordering_key)),
free as (
    select p.seq, p.destination, row_number() over (partition by p.destination order by p.available_at, p.seq) as nth
      from targets r cross join outlog_parked p on p.destination = r.destination
     where p.state = 'PENDING' and p.ordering_key is null and p.available_at <= outlog_after(0))
select d.seq from (select * from heads union all select * from free) d join targets r using (destination)
 where d.nth <= r.capacity and :lane = 0

-- name: parked_mark(lane, seqs, run, lease_us)
update outlog_parked
   set state = 'CLAIMED', attempts = attempts + 1, claimed_by = :run, claimed_at = outlog_after(0),
       updated_at = outlog_after(0), lease_until = outlog_after(:lease_us)
 where lane = :lane and seq in (select value from json_each(:seqs)) and state = 'PENDING'

-- name: parked_marked(lane, seqs)
select o.seq
       --= message columns: , o.{name}
       , p.attempts, p.unsent, p.budget_from, p.is_replay
  from outlog_parked p join outlog_outbox o on o.seq = p.seq
 where p.lane = :lane and p.seq in (select value from json_each(:seqs)) order by o.seq

-- name: parked_rebase(lane)
-- Rows that were written before the clock was set back: what was left to wait then is left to wait
-- now. (What is due at once has an available_at just before its updated_at.)
update outlog_parked
   set available_at = iif(outlog_until(available_at) >= outlog_until(updated_at) - 1000000,
                          outlog_after(outlog_until(available_at) - outlog_until(updated_at)), available_at),
       lease_until = iif(lease_until is null, null,
                         outlog_after(outlog_until(lease_until) - outlog_until(claimed_at))),
       updated_at = outlog_after(0)
 where lane = :lane and state in ('PENDING', 'CLAIMED') and updated_at > outlog_after(1000000)

-- name: parked_reap(lane, as_of, held)
-- Never what the caller itself still has on the wire (held); by the time that the caller reckons.
update outlog_parked as p
   set state = iif(o.at_most_once
                   or p.attempts - p.unsent - p.budget_from >= coalesce(o.max_attempts, 1000000),
                   'DEAD', 'PENDING'),
       held = (o.at_most_once or p.attempts - p.unsent - p.budget_from >= coalesce(o.max_attempts, 1000000))
              and p.ordering_key is not null
              and coalesce((select d.on_dead = 'hold' from outlog_destinations d where d.name = p.destination), 0),
       claimed_by = null, claimed_at = null, lease_until = null, available_at = outlog_after(0),
       updated_at = outlog_after(0),
       last_error = case when p.last_error = 'outcome unknown: the relay went away' then p.last_error
                         else 'outcome unknown: no answer within the lease' end
  from outlog_outbox o
 where p.lane = :lane and p.state = 'CLAIMED' and p.lease_until < :as_of
   and p.seq not in (select value from json_each(:held)) and o.seq = p.seq
returning seq, state

-- name: attempts_add(lane, run, rows)
insert into outlog_attempts (lane, seq, attempt, started_at, duration_ms, outcome, status, permanent, response,
       error, claimed_by, recorded_at)
select :lane, r.value ->> 'seq', r.value ->> 'attempt', r.value ->> 'started_at', r.value ->> 'duration_ms',
       r.value ->> 'outcome', r.value ->> 'status', coalesce(r.value ->> 'permanent', 0), r.value ->> 'response',
       r.value ->> 'error', :run, outlog_after(0)
  from json_each(:rows) r where true
on conflict do nothing

-- name: attempts_add_plain(lane, run, rows)
-- Successes without a word: [[seq, attempt, status, started_us, duration_ms], …].
insert into outlog_attempts (lane, seq, attempt, started_at, duration_ms, outcome, status, claimed_by, recorded_at)
select :lane, r.value ->> 0, r.value ->> 1,
       strftime('%Y-%m-%dT%H:%M:%S', (r.value ->> 3) / 1000000, 'unixepoch')
           || printf('.%06dZ', (r.value ->> 3) % 1000000),
       r.value ->> 4, 'ok', nullif(r.value ->> 2, 0), :run, outlog_after(0)
  from json_each(:rows) r where true
on conflict do nothing

-- name: relay_session(timeout_ms)
-- SQLite ends no transaction by itself: ours do nothing but write.
select 1 where :timeout_ms > 0

-- name: parked_above(lane, head)
-- Messages that an operator parked before the lane came to them.
select seq from outlog_parked where lane = :lane and seq > :head order by seq

-- name: prune(lane, epoch, after, last, before)
-- Removes what was published before a time, by a trigger; if the lane is ours.
insert into outlog_prunings (after_seq, last_seq, before)
select :after, :last, :before from outlog_lanes where lane = :lane and epoch = :epoch

-- name: outbox_keys_purge(before, limit literal)
-- A bounded chunk.
delete from outlog_outbox_keys where (org_key, destination, idempotency_key) in (
    select org_key, destination, idempotency_key from outlog_outbox_keys where kept_at < :before limit :limit)
