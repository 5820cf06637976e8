-- The lane protocol. The lane's row is its only lock; every statement here either locks it first or
-- runs in a transaction that did (rule 1).

-- name: lane_free(is_safe)
-- Lanes that may be taken: without an owner, with a lease that ended by the database's clock where
-- that clock can be trusted, or with an owner that is gone; and older generations have nothing left
-- to claim. Each comes with its generation and the size of that.
select l.lane, l.first_lane, (select count(*) from outlog.lanes g where g.first_lane = l.first_lane)
  from outlog.lanes l
 where (l.owner is null or (l.lease_until < now() and :is_safe::integer = 1)
        or l.owner in (select d.run from outlog.owners d where d.died_at is not null or d.lost_key = d.lock_key))
   and not exists (select from outlog.lanes e where e.lane < l.first_lane and (not isempty(e.claim)
           or exists (select from outlog.outbox o where o.lane = e.lane and o.seq > e.head)
           or exists (select from unnest(e.gaps) r cross join lateral (select 1 from outlog.outbox o
                       where o.lane = e.lane and o.seq >= lower(r) and o.seq < upper(r) limit 1) f)))
 order by l.lane

-- name: lane_is_sane(lane)
select outlog.lane_is_sane(:lane::smallint)::integer

-- name: server_is_known(lease_us)
select outlog.knows_server(:lease_us)::integer

-- name: lanes_resize(lanes)
select outlog.resize_lanes(:lanes::integer)::integer

-- name: lanes_touch(lanes)
-- Locks the lanes (a JSON array) for an operator, in ascending order (rule 1); and all lanes of
-- newer generations, whose keys may have to wait.
update outlog.lanes t set parked_gen = t.parked_gen + 1
  from (select l.lane from outlog.lanes l
         where l.lane in (select value::smallint from json_array_elements_text(:lanes))
            or l.first_lane > (select min(value::smallint) from json_array_elements_text(:lanes))
         order by l.lane for update) l
 where t.lane = l.lane

-- name: lane_lock(lane, is_safe)
-- Locks a lane that may be taken. No row: it may not, or another relay is taking it. Without the
-- lock the caller could take a lane whose open claim is not parked yet. 1: its lease has ended. 0:
-- its owner seems gone, and what it sent may still be on its way: lane_is_gone decides (rule 29).
select (owner is null or (lease_until < now() and :is_safe::integer = 1))::integer
  from outlog.lanes
 where lane = :lane::smallint
   and (owner is null or (lease_until < now() and :is_safe::integer = 1)
        or owner in (select d.run from outlog.owners d where d.died_at is not null or d.lost_key = d.lock_key))
   for update skip locked

-- name: lanes_cut_leases()
-- A lease that ends later than the owner's lease is long was written before the clock was set back.
-- It ends a whole lease from now: an owner that lives believes in no later end. Ascending (rule 1).
update outlog.lanes t set lease_until = now() + l.lease_us * interval '1 microsecond'
  from (select o.lane, r.lease_us from outlog.lanes o join outlog.owners r on r.run = o.owner
         where o.lease_until > now() + (r.lease_us + 1000000) * interval '1 microsecond'
         order by o.lane for update of o) l
 where t.lane = l.lane

-- name: lane_park_claim(lane)
-- Parks the open claims of the former owner of a locked lane, also of its side cursors (rules 3,
-- 37). These are first attempts with an unknown outcome: due at once, or DEAD where they may not be
-- repeated.
insert into outlog.parked (lane, seq, destination, ordering_key, state, held, attempts, unsent, available_at,
       last_error)
select o.lane, o.seq, o.destination, o.ordering_key, case when c.is_final then 'DEAD' else 'PENDING' end,
       c.is_final and o.ordering_key is not null and coalesce(d.on_dead = 'hold', false),
       1, case when c.is_final then 0 else 1 end, now(), 'outcome unknown: the relay went away'
  from outlog.open_claims l join outlog.outbox o on o.lane = l.lane and o.seq = l.seq
 cross join lateral (select o.at_most_once or coalesce(o.max_attempts = 1, false)) c(is_final)
  left join outlog.destinations d on d.name = o.destination
 where l.lane = :lane::smallint
on conflict (lane, seq) do nothing
returning seq, state

-- name: lane_quarantine(lane, lease_us)
-- Parks the open claims of an owner that ended before its lease (rules 24, 37): CLAIMED, as its
-- own, for as long as what it sent may be on its way; parked_hasten finds out how long that is.
insert into outlog.parked (lane, seq, destination, ordering_key, state, attempts, unsent, available_at,
       claimed_by, claimed_at, lease_until, last_error)
select o.lane, o.seq, o.destination, o.ordering_key, 'CLAIMED', 1,
       case when o.at_most_once or coalesce(o.max_attempts = 1, false) then 0 else 1 end, now(), l.owner, c.claimed_at,
       now() + coalesce(f.lease_us + f.margin_us, :lease_us::bigint) * interval '1 microsecond',
       'outcome unknown: the relay went away'
  from outlog.open_claims c join outlog.lanes l on l.lane = c.lane
  join outlog.outbox o on o.lane = c.lane and o.seq = c.seq
  left join outlog.owners f on f.run = l.owner
 where l.lane = :lane::smallint
on conflict (lane, seq) do nothing

-- name: parked_hasten(lane, timeouts)
-- Cuts the leases of what the former owner has on the wire to the time that an attempt may take,
-- and lengthens none (rules 24, 25). `timeouts` is a JSON array of {destination, us}; 0: nothing
-- leaves. A destination that was changed within a lease, or is gone, may have had another one.
update outlog.parked p
   set lease_until = least(p.lease_until, now() + w.us * interval '1 microsecond'), updated_at = now()
  from (select c.seq, case when t.us = 0 then 0 else least(t.us, f.lease_us) + f.margin_us end
          from outlog.lanes l join outlog.owners f on f.run = l.owner
          join outlog.parked c on c.lane = l.lane and c.state = 'CLAIMED' and c.claimed_by = l.owner
          join outlog.destinations d on d.name = c.destination
               and d.updated_at < now() - f.lease_us * interval '1 microsecond'
          join json_to_recordset(:timeouts) as t(destination text, us bigint) on t.destination = c.destination
         where l.lane = :lane::smallint) w(seq, us)
 where p.lane = :lane::smallint and p.seq = w.seq

-- name: lane_take(lane, run, name, lease_us)
-- Takes the lane and raises its epoch; after lane_lock and lane_park_claim in the same transaction.
update outlog.lanes t
   set epoch = t.epoch + 1, owner = :run, owner_name = :name,
       lease_until = now() + :lease_us::bigint * interval '1 microsecond',
       claim = '{}', claimed_at = null, claim_no = t.claim_no + 1, parked_gen = t.parked_gen + 1, trouble = null
  from (select lane, owner from outlog.lanes where lane = :lane::smallint) l
 where t.lane = l.lane
returning t.epoch, t.head, t.gaps::text, t.parked_gen, t.claim_no, l.owner is not null

-- name: lane_advance(lane, epoch, parked_gen, claim_no, head, gaps, claim, lease_us)
-- Records the open batch as published, except what is parked in the same transaction, and claims
-- the next one. No row: fenced (another epoch), another session changed parked rows (another
-- parked_gen), or a turn that was taken for lost was committed after all (another claim_no).
-- Returns the row's ctid.
with u as (
    update outlog.lanes
       set head = :head, gaps = :gaps::int8multirange, claim = :claim::int8multirange, claim_no = claim_no + 1,
           claimed_at = case when :claim = '{}' then null else now() end,
           lease_until = now() + :lease_us::bigint * interval '1 microsecond'
     where lane = :lane::smallint and epoch = :epoch and parked_gen = :parked_gen and claim_no = :claim_no
    returning lane, ctid),
old as (select l.* from outlog.lanes l join u using (lane)),     -- the statement's snapshot: the claim being closed
b as (
    insert into outlog.batches (lane, from_seq, to_seq, claimed_by, claimed_at, published_at)
    select lane, lower(r), upper(r) - 1, owner, claimed_at, now() from old cross join lateral unnest(claim) r)
select ctid::text from u

-- name: lane_advance_at(lane, epoch, parked_gen, claim_no, head, gaps, claim, lease_us, location) @postgres
-- The same by the location (ctid) where the last turn left the row. While another session keeps a
-- transaction open, every old version of a row stays in the index, so a search by key gets slower
-- with each turn; a search by location does not. No row: the row was moved; search by key.
with old as (
    select * from outlog.lanes
     where ctid = :location::tid and lane = :lane::smallint
       and epoch = :epoch and parked_gen = :parked_gen and claim_no = :claim_no
       for no key update),
u as (
    update outlog.lanes l
       set head = :head, gaps = :gaps::int8multirange, claim = :claim::int8multirange, claim_no = l.claim_no + 1,
           claimed_at = case when :claim = '{}' then null else now() end,
           lease_until = now() + :lease_us::bigint * interval '1 microsecond'
      from old where l.ctid = :location::tid
    returning l.ctid),
b as (
    insert into outlog.batches (lane, from_seq, to_seq, claimed_by, claimed_at, published_at)
    select lane, lower(r), upper(r) - 1, owner, claimed_at, now() from old cross join lateral unnest(claim) r)
select ctid::text from u

-- name: lanes_invalidate()
-- Tells the owners of all lanes that destinations changed: they claim nothing they read before.
-- Writes: lanes, in ascending order (rule 1).
update outlog.lanes l set parked_gen = l.parked_gen + 1
  from (select o.lane from outlog.lanes o order by o.lane for update) all_lanes where l.lane = all_lanes.lane

-- name: lane_release(lane, epoch)
update outlog.lanes set owner = null, owner_name = null, lease_until = null
 where lane = :lane::smallint and epoch = :epoch and claim = '{}'
   and not exists (select from outlog.side_cursors s where s.lane = :lane::smallint and s.claim <> '{}')

-- name: outbox_read(lane, head, limit literal)
-- New messages, in order.
select o.seq
       --= message columns: , o.{name}
  from outlog.outbox o where o.lane = :lane::smallint and o.seq > :head order by o.seq limit :limit

-- name: outbox_read_gaps(lane, head, limit literal, gaps) @postgres
-- The same together with messages that have appeared in open gaps, from one snapshot (rules 7, 10).
select o.seq
       --= message columns: , o.{name}
  from (select f.seq from unnest(:gaps::int8multirange) r
         cross join lateral (select seq from outlog.outbox where lane = :lane::smallint and seq >= lower(r)
                                and seq < upper(r) offset 0) f
        union all
        (select seq from outlog.outbox n
          where n.lane = :lane::smallint and n.seq > :head order by n.seq limit :limit)) found
  join outlog.outbox o on o.lane = :lane::smallint and o.seq = found.seq
 order by o.seq

-- name: outbox_read_lanes(lanes, limit literal) @postgres
-- The same for several lanes (a JSON array of lane, head, gaps, ascending) from one snapshot,
-- each up to the limit. The lane is the last column.
select o.seq
       --= message columns: , o.{name}
       , o.lane
  from json_to_recordset(:lanes) as r(lane smallint, head bigint, gaps int8multirange)
 cross join lateral (
       (select * from outlog.outbox n where n.lane = r.lane and n.seq > r.head order by n.seq limit :limit)
       union all
       select f.* from unnest(r.gaps) g
        cross join lateral (select * from outlog.outbox
              where lane = r.lane and seq >= lower(g) and seq < upper(g) offset 0) f) o
 order by o.lane, o.seq

-- name: outbox_holders() @postgres
-- Who may still fill a gap: whoever holds the table's insert lock. To be asked after the read that
-- saw the gap (rule 20).
select virtualtransaction || '/' || coalesce(pid, 0) from pg_locks
 where locktype = 'relation' and mode = 'RowExclusiveLock' and relation = 'outlog.outbox'::regclass
   and database = (select oid from pg_database where datname = current_database())
   and pid is distinct from pg_backend_pid()

-- name: lane_poll(lanes)
-- A cheap poll of all owned lanes (a JSON array): newest message, parked_gen, and in how many
-- microseconds the next parked message is due (null: none).
select l.lane, coalesce((select max(seq) from outlog.outbox o where o.lane = l.lane), 0), l.epoch, l.parked_gen,
       (select (extract(epoch from min(available_at) - now()) * 1000000)::bigint from outlog.parked p
         where p.lane = l.lane and p.state = 'PENDING'),
       (select (extract(epoch from min(lease_until) - now()) * 1000000)::bigint from outlog.parked p
         where p.lane = l.lane and p.state = 'CLAIMED')
  from outlog.lanes l where l.lane in (select value::smallint from json_array_elements_text(:lanes))

-- name: parked_add(lane, run, rows)
-- What left the plain path, from a JSON array. A second row for one message is an error.
insert into outlog.parked (lane, seq, destination, ordering_key, state, held, attempts, unsent, available_at,
                           claimed_by, claimed_at, lease_until, last_error)
select :lane::smallint, r.seq, r.destination, r.ordering_key, r.state, coalesce(r.held, false), r.attempts, r.unsent,
       coalesce(r.available_at, now() + r.wait_us * interval '1 microsecond'),
       case when r.state = 'CLAIMED' then :run end, case when r.state = 'CLAIMED' then now() end,
       case when r.state = 'CLAIMED' then now() + r.lease_us * interval '1 microsecond' end, r.last_error
  from json_to_recordset(:rows) as r(seq bigint, destination text, ordering_key text, state text, held boolean,
       attempts integer, unsent integer, available_at timestamptz, wait_us bigint, lease_us bigint, last_error text)

-- name: parked_finish(lane, run, rows)
-- Ends claims of parked messages, each by its own token (rule 13); a row that is not ours any more
-- changes nothing.
update outlog.parked p
   set state = r.state, held = coalesce(r.held, false), unsent = greatest(p.unsent + r.unsent, 0), claimed_by = null,
       claimed_at = null, lease_until = null, updated_at = now(),
       last_error = coalesce(r.last_error, case when r.state = 'PUBLISHED' then null else p.last_error end),
       available_at = case when r.state = 'PENDING' then now() + r.wait_us * interval '1 microsecond'
                           else p.available_at end,
       published_at = case when r.state = 'PUBLISHED' then now() end
  from json_to_recordset(:rows) as r(seq bigint, attempts integer, state text, held boolean, unsent integer,
       wait_us bigint, last_error text)
 where p.lane = :lane::smallint and p.seq = r.seq and p.state = 'CLAIMED' and p.claimed_by = :run
   and p.attempts = r.attempts
returning p.seq

-- name: parked_due(lane, capacity)
-- What is due and first of its key (rule 15), up to the capacity of each destination. Scans keys
-- of these destinations only: a paused one may have many.
with recursive targets as (
    select * from json_to_recordset(:capacity) as r(destination text, capacity integer)),
keys as (                                             -- the lowest open message of each key, by a loose scan
    (select p.* from targets r cross join lateral (
        select p.destination, p.ordering_key, p.seq, p.state, p.available_at from outlog.parked p
         where p.lane = :lane::smallint and p.ordering_key is not null and (p.state in ('PENDING', 'CLAIMED') or p.held)
           and p.destination = r.destination
         order by p.ordering_key, p.seq limit 1) p)
    union all
    select n.* from keys k cross join lateral (
        select p.destination, p.ordering_key, p.seq, p.state, p.available_at from outlog.parked p
         where p.lane = :lane::smallint and p.ordering_key is not null and (p.state in ('PENDING', 'CLAIMED') or p.held)
           and p.destination = k.destination and p.ordering_key > k.ordering_key
         order by p.ordering_key, p.seq limit 1) n),
heads as (
    select k.seq, k.destination, row_number() over (partition by k.destination order by k.available_at, k.seq) as nth
      from keys k
     where k.state = 'PENDING' and k.available_at <= now()
       and k.seq <= coalesce(                                                   -- lower ones come first
           (select s.head from outlog.side_cursors s join outlog.outbox o on o.lane = s.lane and o.seq = k.seq
             where s.lane = :lane::smallint and s.destination = k.destination and s.since < k.seq
               and s.org_key in ('', ':' || coalesce(o.org_id, '')) order by s.org_key desc limit 1),
           (select l.head from outlog.lanes l where l.lane = :lane::smallint))
       and not exists (select from outlog.parked c where c.lane = :lane::smallint and c.state = 'CLAIMED'
                          and c.destination = k.destination and c.ordering_key = k.ordering_key)
       and not exists (select from outlog.lanes l join outlog.parked e on e.lane < l.first_lane      -- of older lanes
                        where l.lane = :lane::smallint and e.destination = k.destination
                          and e.ordering_key = k.ordering_key
                          and (e.state in ('PENDING', 'CLAIMED') or e.held)))
select h.seq from heads h join targets t using (destination) where h.nth <= t.capacity
union all
select f.seq from targets t cross join lateral (
    select p.seq from outlog.parked p
     where p.lane = :lane::smallint and p.destination = t.destination and p.ordering_key is null
       and p.state = 'PENDING' and p.available_at <= now()
     order by p.available_at limit t.capacity) f

-- name: parked_mark(lane, seqs, run, lease_us)
-- attempts grows here, before any byte leaves (O4).
update outlog.parked
   set state = 'CLAIMED', attempts = attempts + 1, claimed_by = :run, claimed_at = now(), updated_at = now(),
       lease_until = now() + :lease_us::bigint * interval '1 microsecond'
 where lane = :lane::smallint and seq in (select value::bigint from json_array_elements_text(:seqs))
   and state = 'PENDING'

-- name: parked_marked(lane, seqs)
select o.seq
       --= message columns: , o.{name}
       , p.attempts, p.unsent, p.budget_from, p.is_replay
  from outlog.parked p join outlog.outbox o on o.lane = p.lane and o.seq = p.seq
 where p.lane = :lane::smallint and p.seq in (select value::bigint from json_array_elements_text(:seqs))
 order by o.seq

-- name: parked_rebase(lane)
-- Rows that were written before the clock was set back: what was left to wait then is left to wait
-- now, else they would wait as long as the clock was ahead.
update outlog.parked
   set available_at = case when available_at >= updated_at then now() + (available_at - updated_at)
                           else available_at end,
       lease_until = now() + (lease_until - claimed_at), updated_at = now()
 where lane = :lane::smallint and state in ('PENDING', 'CLAIMED') and updated_at > now() + interval '1 second'

-- name: parked_reap(lane, as_of, held)
-- Claims whose own lease is over (rule 14): whoever held them is gone or too late. Never those that
-- the caller itself still has on the wire (held, a JSON array), whatever the clock says; and by the
-- time that the caller reckons, which no step of the clock since its last heartbeat has moved.
update outlog.parked p
   set state = case when o.at_most_once
                      or p.attempts - p.unsent - p.budget_from >= coalesce(o.max_attempts, 1000000)
                    then 'DEAD' else 'PENDING' end,
       held = (o.at_most_once or p.attempts - p.unsent - p.budget_from >= coalesce(o.max_attempts, 1000000))
              and p.ordering_key is not null
              and coalesce((select d.on_dead = 'hold' from outlog.destinations d where d.name = p.destination), false),
       claimed_by = null, claimed_at = null, lease_until = null, available_at = now(), updated_at = now(),
       last_error = case when p.last_error = 'outcome unknown: the relay went away' then p.last_error
                         else 'outcome unknown: no answer within the lease' end
  from outlog.outbox o
 where p.lane = :lane::smallint and p.state = 'CLAIMED' and p.lease_until < :as_of::timestamptz
   and p.seq not in (select value::bigint from json_array_elements_text(:held))
   and o.lane = p.lane and o.seq = p.seq
returning p.seq, p.state

-- name: attempts_add(lane, run, rows)
insert into outlog.attempts (lane, seq, attempt, started_at, duration_ms, outcome, status, permanent, response,
       error, claimed_by, recorded_at)
select :lane::smallint, r.seq, r.attempt, r.started_at, r.duration_ms, r.outcome, r.status,
       coalesce(r.permanent, false), r.response, r.error, :run, now()
  from json_to_recordset(:rows) as r(seq bigint, attempt integer, started_at timestamptz, duration_ms integer,
       outcome text, status integer, permanent boolean, response text, error text)
on conflict do nothing

-- name: attempts_add_plain(lane, run, rows)
-- Successes without response or error: [[seq, attempt, status, started_us, duration_ms], …]. Most
-- attempts are such, and parsing objects costs as much as storing the rows, so they are numbers.
-- The caller holds the lane's row, so where their range has no attempts yet none can appear. That
-- saves a lookup per row, a third of the work.
with r as materialized (select translate(:rows, '[]', '{}')::bigint[] as a),
v as materialized (
    select :lane::smallint as lane, a[i][1] as seq, a[i][2]::integer as attempt,
           timestamptz 'epoch' + a[i][4] * interval '1 microsecond' as started_at, a[i][5]::integer as duration_ms,
           'ok'::text as outcome, nullif(a[i][3], 0)::integer as status, :run::text as claimed_by, now() as recorded_at
      from r cross join generate_subscripts(r.a, 1) i),
old as materialized (
    select exists (select from outlog.attempts t
                    where t.lane = :lane::smallint and t.seq between w.low and w.high) as is_there
      from (select min(seq) as low, max(seq) as high from v) w),
new as (
    insert into outlog.attempts (lane, seq, attempt, started_at, duration_ms, outcome, status, claimed_by, recorded_at)
    select v.* from v cross join old where not old.is_there)
insert into outlog.attempts (lane, seq, attempt, started_at, duration_ms, outcome, status, claimed_by, recorded_at)
select v.* from v cross join old where old.is_there
on conflict do nothing

-- name: relay_session(timeout_ms)
-- A hanging session must let go of the lane's row well before its lease ends (rule 5).
select set_config('idle_in_transaction_session_timeout', :timeout_ms::text, false),
       set_config('statement_timeout', :timeout_ms::text, false), set_config('lock_timeout', :timeout_ms::text, false)

-- name: parked_above(lane, head)
-- Messages that an operator parked before the lane came to them: above the head, or in a gap.
select p.seq from outlog.parked p join outlog.lanes l on l.lane = p.lane
 where p.lane = :lane::smallint and (p.seq > :head or l.gaps @> p.seq) order by p.seq

-- name: prune(lane, epoch, after, last, before)
-- Removes what was published before a time from a stretch of a lane that is ours.
select outlog.prune(:lane::smallint, :epoch, :after, :last, :before)

-- name: outbox_keys_purge(before, limit literal)
-- A bounded chunk; a row for each key that went.
select * from outlog.purge_keys(:before, :limit)

-- name: relay_listen() @postgres
listen outlog

-- name: relay_arm() @postgres
-- 1: writers see from now on that a relay listens. 0: a writer is trying the lock.
select pg_try_advisory_lock_shared(28492, 2)::integer

-- name: relay_disarm() @postgres
-- By its name: the session may hold the lock of an owner as well.
select pg_advisory_unlock_shared(28492, 2)
