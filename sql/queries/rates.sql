-- Recent rates. Each query uses an index on time and reads what is recent, never a whole table.

-- name: clock_at(us)
-- The store's own clock, which wrote the times below.
select outlog.after(:us::bigint)

-- name: batch_total(since, until)
-- How many sequence numbers the batches of published messages cover.
select coalesce(sum(to_seq - from_seq + 1), 0)::bigint from outlog.batches
 where published_at > :since and published_at <= :until

-- name: batch_newest(since, until, limit literal)
select lane, from_seq, to_seq, published_at, destination, org_key from outlog.batches
 where published_at > :since and published_at <= :until order by published_at desc limit :limit

-- name: batch_sample(lane, from_seq, to_seq, destination, org_key, limit literal)
-- Some messages of a batch. Not published with it are parked ones, and those of another cursor.
select o.destination, o.created_at, case when p.seq is not null
           or (:destination <> '' and (o.destination <> :destination
               or (:org_key <> '' and :org_key <> ':' || coalesce(o.org_id, ''))))
           or (:org_key = '' and exists (select 1 from outlog.side_cursors s
                where s.lane = o.lane and s.destination = o.destination and s.since < o.seq
                  and s.org_key in ('', ':' || coalesce(o.org_id, ''))
                  and (s.destination <> :destination or s.org_key <> '')))
           or (:org_key = '' and exists (select 1 from outlog.batches b
                where b.lane = o.lane and b.destination = o.destination
                  and b.org_key in ('', ':' || coalesce(o.org_id, ''))
                  and b.to_seq >= o.seq and b.to_seq <= :to_seq + 100000 and b.from_seq <= o.seq
                  and (b.destination <> :destination or b.org_key <> '')))
           then 1 else 0 end
  from outlog.outbox o left join outlog.parked p on p.lane = o.lane and p.seq = o.seq
 where o.lane = :lane and o.seq between :from_seq and :to_seq order by o.seq limit :limit

-- name: parked_published(since, until, limit literal)
-- Parked messages that were published: published_at is set if and only if the state is PUBLISHED.
select p.destination, p.published_at, o.created_at
  from outlog.parked p join outlog.outbox o on o.lane = p.lane and o.seq = p.seq
 where p.published_at > :since and p.published_at <= :until
 order by p.published_at desc limit :limit

-- name: attempts_failed(since, until)
select p.destination, count(*)
  from outlog.attempts a join outlog.parked p on p.lane = a.lane and p.seq = a.seq
 where a.outcome in ('failed', 'unknown') and a.recorded_at > :since and a.recorded_at <= :until
 group by p.destination

-- name: lane_stalled(lease_us)
-- A lane without an owner whose oldest message has been due for longer than a lease.
select l.lane from outlog.lanes l
 where (l.owner is null or l.lease_until < outlog.after(-:lease_us::bigint))
   and ((select coalesce(o.available_at, o.created_at) from outlog.outbox o
          where o.lane = l.lane and o.seq > l.head order by o.seq limit 1) < outlog.after(-:lease_us::bigint)
     or exists (select 1 from outlog.side_cursors s
                 where s.lane = l.lane and s.opened_at < outlog.after(-:lease_us::bigint))
     or exists (select 1 from outlog.parked p
                 where p.lane = l.lane and p.state = 'PENDING' and p.available_at < outlog.after(-:lease_us::bigint)))
 order by l.lane limit 1
