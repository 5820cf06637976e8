-- O10: retention deletes published messages after a set time, with all rows about them. DEAD
-- messages stay until a person acts; messages that are not delivered yet stay too.

-- Deletes the messages of one range of a lane that were PUBLISHED before a time. The lane's owner
-- calls it. It holds the lane's lock, so no replay starts meanwhile. A parked row is deleted with
-- its message, a batch with the last message of its range, and the key stays in outbox_keys (I5).
create function outlog.prune(lane smallint, epoch bigint, after_seq bigint, last_seq bigint, before timestamptz)
    returns void language plpgsql security definer
    set search_path = pg_catalog, pg_temp as $$
begin
    perform from outlog.lanes l where l.lane = prune.lane and l.epoch = prune.epoch for update;
    if not found then
        return;
    end if;
    perform set_config('outlog.pruning', 'on', true);      -- for the triggers that refuse every DELETE
    with gone as (
        delete from outlog.outbox o using outlog.outbox_state s
         where o.lane = prune.lane and o.seq > after_seq and o.seq <= last_seq
           and s.lane = prune.lane and s.seq > after_seq and s.seq <= last_seq and s.seq = o.seq
           and s.state = 'PUBLISHED' and s.published_at < before
        returning o.org_id, o.destination, o.idempotency_key, o.event_id)
    insert into outlog.outbox_keys (org_key, destination, idempotency_key, event_id)
    select coalesce(org_id, ''), destination, idempotency_key, event_id from gone where idempotency_key is not null
    on conflict do nothing;
    delete from outlog.parked p where p.lane = prune.lane and p.seq > after_seq and p.seq <= last_seq
       and not exists (select from outlog.outbox o where o.lane = p.lane and o.seq = p.seq);
    delete from outlog.attempts a where a.lane = prune.lane and a.seq > after_seq and a.seq <= last_seq
       and not exists (select from outlog.outbox o where o.lane = a.lane and o.seq = a.seq);
    delete from outlog.batches b where b.lane = prune.lane and b.to_seq > after_seq and b.to_seq <= last_seq
       and not exists (select from outlog.outbox o where o.lane = b.lane and o.seq between b.from_seq and b.to_seq);
    perform set_config('outlog.pruning', 'off', true);
end $$;

-- Keys of deleted messages are kept as long as answers are (retention.idempotency), at least 24
-- hours.
create index outbox_keys_by_age on outlog.outbox_keys (kept_at);
create function outlog.purge_keys(before timestamptz, max_rows integer) returns setof integer
    language sql security definer set search_path = pg_catalog, pg_temp as $$
    with gone as (
        delete from outlog.outbox_keys where ctid = any (array(
            select ctid from outlog.outbox_keys
             where kept_at < least(before, now() - interval '24 hours') limit max_rows))
        returning 1)
    select 1 from gone
$$;

revoke all on function outlog.prune, outlog.purge_keys from public;
do $$ begin
    if exists (select from pg_roles where rolname = 'outlog_relay') then
        grant execute on function outlog.prune, outlog.purge_keys to outlog_relay;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant execute on function outlog.prune, outlog.purge_keys to outlog_admin;
    end if;
end $$;
