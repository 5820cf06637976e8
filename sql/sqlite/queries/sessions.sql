-- Live sessions: queries that need the last seq of an aggregate, from its index.

-- name: session_ready(org_id, session_key)
-- A read before the write, because most hints come too late. The last seq includes the newest
-- message.
select 1 from (select max(aggregate_seq) as aggregate_seq from outlog_events
                where aggregate_id = :session_key and aggregate_type = 'session' and coalesce(org_id, '') = :org_id) h
  left join outlog_sessions s on s.org_id = :org_id and s.session_key = :session_key
 where (s.last_seq > s.done_seq or h.aggregate_seq > coalesce(s.done_seq, 0))
   and (s.lease_until is null or s.lease_until < outlog_after(0)
        or s.owner in (select d.run from outlog_owners d where d.died_at is not null))
   and (s.retry_at is null or s.retry_at <= outlog_after(0))

-- name: session_take(org_id, session_key, owner, lease_us)
-- Only after session_ready: there is a message to answer, so a session without a row gets one here.
insert into outlog_sessions as s (org_id, session_key, last_seq, owner, epoch, lease_until)
select :org_id, :session_key, coalesce((select max(aggregate_seq) from outlog_events
        where aggregate_id = :session_key and aggregate_type = 'session' and coalesce(org_id, '') = :org_id), 0),
       :owner, 1, outlog_after(:lease_us)
 where true
on conflict (org_id, session_key) do update
   set last_seq = case when s.last_seq < excluded.last_seq then excluded.last_seq else s.last_seq end,
       owner = excluded.owner, epoch = s.epoch + 1, lease_until = excluded.lease_until
 where (s.last_seq > s.done_seq or excluded.last_seq > s.done_seq)
   and (s.lease_until is null or s.lease_until < outlog_after(0)
        or s.owner in (select d.run from outlog_owners d where d.died_at is not null))
   and (s.retry_at is null or s.retry_at <= outlog_after(0))
returning done_seq, last_seq, epoch, tries, checkpoint
