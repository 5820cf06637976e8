-- Live sessions: queries that need the last seq of an aggregate, from outlog.heads.

-- name: session_ready(org_id, session_key)
-- A read before the write, because most hints come too late. The last seq includes the newest
-- message.
select 1 from (select 1 as one) here
  left join outlog.sessions s on s.org_id = :org_id and s.session_key = :session_key
  left join outlog.heads h on h.org_key = :org_id and h.aggregate_type = 'session' and h.aggregate_id = :session_key
 where (s.last_seq > s.done_seq or h.aggregate_seq > coalesce(s.done_seq, 0))
   and (s.lease_until is null or s.lease_until < outlog.after(0)
        or s.owner::text in (select d.run from outlog.owners d where d.died_at is not null))
   and (s.retry_at is null or s.retry_at <= outlog.after(0))

-- name: session_take(org_id, session_key, owner, lease_us)
-- Only after session_ready: there is a message to answer, so a session without a row gets one here.
insert into outlog.sessions as s (org_id, session_key, last_seq, owner, epoch, lease_until)
select :org_id::text, :session_key::text, coalesce((select h.aggregate_seq from outlog.heads h
        where h.org_key = :org_id and h.aggregate_type = 'session' and h.aggregate_id = :session_key), 0),
       :owner::uuid, 1, outlog.after(:lease_us::bigint)
 where true
on conflict (org_id, session_key) do update
   set last_seq = case when s.last_seq < excluded.last_seq then excluded.last_seq else s.last_seq end,
       owner = excluded.owner, epoch = s.epoch + 1, lease_until = excluded.lease_until
 where (s.last_seq > s.done_seq or excluded.last_seq > s.done_seq)
   and (s.lease_until is null or s.lease_until < outlog.after(0)
        or s.owner::text in (select d.run from outlog.owners d where d.died_at is not null))
   and (s.retry_at is null or s.retry_at <= outlog.after(0))
returning done_seq, last_seq, epoch, tries, checkpoint
