-- Live sessions.

-- name: session_list(before_at?, before_key, org_id?, limit literal)
select org_id, session_key, last_seq, done_seq, tries, last_error, created_at, updated_at
  from outlog.sessions
 where true
   and org_id = :org_id                                                    --? org_id
   and (updated_at, session_key) < (:before_at::timestamptz, :before_key)  --? before_at
 order by updated_at desc, session_key desc limit :limit

-- name: session_waiting(limit literal)
-- Sessions with unanswered messages and without an owner that lives.
select org_id, session_key from outlog.sessions
 where last_seq > done_seq
   and (lease_until is null or lease_until < outlog.after(0)
        or owner::text in (select d.run from outlog.owners d where d.died_at is not null))
   and (retry_at is null or retry_at <= outlog.after(0))
 order by updated_at limit :limit

-- name: sessions_noted()
-- How far the log was scanned for messages, and where it ends.
select n.event_id, (select coalesce(max(e.event_id), 0) from outlog.events e) from outlog.sessions_noted n

-- name: sessions_move(from_id, to_id)
-- The process that moves the cursor records the messages in between, in the same transaction.
-- 0 rows: another process has moved it.
update outlog.sessions_noted set event_id = :to_id::bigint where event_id = :from_id::bigint

-- name: sessions_have_message(after, upto)
-- Is there a message in this range?
select 1 from outlog.events e
 where e.event_id > :after::bigint and e.event_id <= :upto::bigint
   and coalesce(e.aggregate_type, '') = 'session' and coalesce(e.org_id, '') <> '' limit 1

-- name: sessions_note(after, upto)
-- Records each session's last message; repeating it changes nothing. coalesce keeps the planner
-- from the other indexes: it reads the events of this range, not all messages. In key order, so
-- that two processes lock alike.
insert into outlog.sessions as s (org_id, session_key, last_seq)
select e.org_id, e.aggregate_id, max(e.aggregate_seq) from outlog.events e
 where e.event_id > :after::bigint and e.event_id <= :upto::bigint
   and coalesce(e.aggregate_type, '') = 'session' and coalesce(e.org_id, '') <> ''
 group by e.org_id, e.aggregate_id order by e.org_id, e.aggregate_id
on conflict (org_id, session_key) do update
   set last_seq = excluded.last_seq, updated_at = outlog.after(0)
 where s.last_seq < excluded.last_seq

-- name: session_renew(org_id, session_key, epoch, lease_us)
update outlog.sessions set lease_until = outlog.after(:lease_us::bigint)
 where org_id = :org_id and session_key = :session_key and epoch = :epoch::bigint

-- name: session_answered(org_id, session_key, epoch, seq, checkpoint, error)
-- 0 rows: another owner has the lease.
update outlog.sessions
   set done_seq = :seq::bigint, last_seq = case when last_seq < :seq::bigint then :seq::bigint else last_seq end,
       tries = 0, retry_at = null, last_error = :error, owner = null, lease_until = null,
       failed_seq = case when :error::text is null then failed_seq else :seq::bigint end,
       failed_at = case when :error::text is null then failed_at else outlog.after(0) end,
       checkpoint = coalesce(:checkpoint::json, checkpoint), updated_at = outlog.after(0)
 where org_id = :org_id and session_key = :session_key and epoch = :epoch::bigint
   and done_seq = :seq::bigint - 1

-- name: session_failed(org_id, session_key, epoch, error, wait_us)
update outlog.sessions
   set tries = tries + 1, last_error = :error, retry_at = outlog.after(:wait_us::bigint), owner = null,
       lease_until = null
 where org_id = :org_id and session_key = :session_key and epoch = :epoch::bigint

-- name: session_release(org_id, session_key, epoch)
update outlog.sessions set owner = null, lease_until = null
 where org_id = :org_id and session_key = :session_key and epoch = :epoch::bigint

-- name: session_event(org_id, session_key, seq)
-- coalesce keeps the planner from the org's index: it would read all events of the org.
select id, event_type, payload, correlation_id from outlog.events
 where coalesce(org_id, '') = :org_id and aggregate_type = 'session' and aggregate_id = :session_key
   and aggregate_seq = :seq::bigint

-- name: session_requests(org_id, session_key, after, upto)
-- A page of the messages of a session; events of other types without their payload.
select aggregate_seq, case when event_type = 'user_message' then payload end from outlog.events
 where coalesce(org_id, '') = :org_id and aggregate_type = 'session' and aggregate_id = :session_key
   and aggregate_seq > :after::bigint and aggregate_seq <= :upto::bigint
 order by aggregate_seq limit 100

-- name: session_effects(org_id?, session_key?, status?, after?, limit literal, most_bytes?)
-- In the order of the log, which no clock changes. most_bytes as for events_read.
select * from (                                                                                         --? most_bytes
select effect_id, run_id, step_id, session_key, checkpoint_id, effect_type, effect_spec, destination, status,
       idempotency_key, message_id, execution_result, executed_at, attempts, last_attempt_at, created_at, updated_at,
       org_id, correlation_id, event_id, last_event_id
     , sum(octet_length(effect_spec::text) + coalesce(octet_length(execution_result::text), 0)) --? most_bytes
           over (order by event_id rows between unbounded preceding and 1 preceding) as bytes_before     --? most_bytes
  from outlog.effects
 where session_key is not null
   and org_id = :org_id                                                                                 --? org_id
   and session_key = :session_key                                                                       --? session_key
   and status = :status                                                                                 --? status
   and event_id > (select e.event_id from outlog.effects e where e.effect_id = :after::uuid)            --? after
 order by event_id limit :limit
) page where bytes_before is null or bytes_before < :most_bytes::bigint order by event_id               --? most_bytes

-- name: session_pending_effects(org_id, session_key, after)
-- Effects that no client has acknowledged, in order. Other destinations are the relay's.
select effect_id, effect_type, effect_spec, event_id from outlog.effects
 where session_key = :session_key and org_id = :org_id and destination = 'session'
   and status in ('PENDING', 'EXECUTING')
   and event_id > :after::bigint
 order by event_id limit 200

-- name: sessions_changed(after, since_us)
-- Sessions that got effects after that position; and those whose effects were requested again,
-- and when (L6).
select distinct org_id, session_key, null::timestamptz from outlog.effects
 where session_key is not null and status in ('PENDING', 'EXECUTING') and destination = 'session'
   and event_id + 0 > :after::bigint
union all
select org_id, session_key, max(hurried_at) from outlog.effects
 where session_key is not null and status in ('PENDING', 'EXECUTING') and destination = 'session'
   and hurried_at >= outlog.after(-:since_us::bigint)
 group by org_id, session_key

-- name: session_redeliver(org_id, session_key)
-- All of them get the same time, which distinguishes one request from the next.
update outlog.effects set hurried_at = (select outlog.after(0)), updated_at = (select outlog.after(0))
 where session_key = :session_key and org_id = :org_id and destination = 'session'
   and status in ('PENDING', 'EXECUTING')

-- name: sessions_failed(since_us)
-- Messages that were given up lately.
select s.org_id, s.session_key, s.failed_seq, s.last_error,
       (select e.payload from outlog.events e
         where coalesce(e.org_id, '') = s.org_id and e.aggregate_type = 'session'
           and e.aggregate_id = s.session_key and e.aggregate_seq = s.failed_seq)
  from outlog.sessions s where s.failed_at >= outlog.after(-:since_us::bigint)

-- name: session_effect(org_id, session_key, effect_id)
-- The row is locked until the transaction ends: of two acknowledgements one is the first.
update outlog.effects set updated_at = outlog.after(0)
 where effect_id = :effect_id::uuid and session_key = :session_key and org_id = :org_id
   and status in ('PENDING', 'EXECUTING') and destination = 'session'
returning effect_type, last_event_id, correlation_id, org_id, status, attempts, last_attempt_at

-- name: session_attempted(effect_id, count)
-- Nothing is counted after the end, whose event tells the number.
update outlog.effects
   set attempts = attempts + :count::bigint, last_attempt_at = outlog.after(0), updated_at = outlog.after(0)
 where effect_id = :effect_id::uuid and status in ('PENDING', 'EXECUTING') and destination = 'session'
returning effect_type, last_event_id, correlation_id, org_id, status, attempts, last_attempt_at

-- name: session_effect_move(effect_id, status, last_event_id, at)
update outlog.effects
   set status = :status, last_event_id = :last_event_id::uuid, updated_at = :at::timestamptz,
       executed_at = case when :status = 'COMPLETED' then :at::timestamptz else executed_at end
 where effect_id = :effect_id::uuid

-- name: session_effect_lock(effect_id, org_id?)
-- Locked until the transaction ends, whatever its state.
update outlog.effects set updated_at = updated_at
 where effect_id = :effect_id::uuid and destination = 'session'
   and org_id = :org_id      --? org_id
returning effect_type, last_event_id, correlation_id, org_id, status, attempts, last_attempt_at

-- name: session_effect_hurry(effect_id)
update outlog.effects set hurried_at = outlog.after(0) where effect_id = :effect_id::uuid

-- name: ticket_add(hash, org_id, session_key, life_us)
insert into outlog.tickets (hash, org_id, session_key, expires_at)
values (:hash, :org_id, :session_key, outlog.after(:life_us::bigint))
returning expires_at

-- name: ticket_use(hash, session_key)
-- Once: the delete that finds the row uses the ticket.
delete from outlog.tickets where hash = :hash and session_key = :session_key and expires_at > outlog.after(0)
returning org_id

-- name: tickets_sweep()
delete from outlog.tickets where expires_at < outlog.after(-60000000)
