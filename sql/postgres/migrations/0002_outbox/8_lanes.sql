-- Changing the number of lanes, and detecting a restarted, promoted or restored server.

-- Sends new messages to a new generation of lanes; returns whether anything changed. Old lanes
-- stay: their messages are delivered from there and can always be requeued. Locking the outbox
-- waits for every writer that knows only the old lanes. So per key the messages of the new
-- generation follow those of the old one: relays take a new lane only when the older lanes have
-- nothing left to claim, and a key waits while an older lane has an open message of it
-- (older_keys, parked_due).
create function outlog.resize_lanes(lane_count integer) returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    plan outlog.lane_plan;
    first integer;
    names regclass[];
begin
    lock table outlog.lane_plan in share row exclusive mode;
    select * into plan from outlog.lane_plan p where p.is_current;
    if plan.lane_count = resize_lanes.lane_count then
        return false;
    end if;
    select max(lane) + 1 into first from outlog.lanes;
    if resize_lanes.lane_count < 1 or first + resize_lanes.lane_count > 256 then
        perform outlog.fail('invalid_field', format('relay.lanes: there are %s lanes of this and earlier sizes, and '
            '256 is the most: %s more do not fit', first, resize_lanes.lane_count));
    end if;
    for i in first .. first + resize_lanes.lane_count - 1 loop
        execute format('create sequence outlog.lane_%s_seq cache 1', i);
        names := names || format('outlog.lane_%s_seq', i)::regclass;
    end loop;
    lock table outlog.outbox in share row exclusive mode;
    insert into outlog.lanes (lane, first_lane)
    select i, first from generate_series(first, first + resize_lanes.lane_count - 1) i;
    update outlog.lane_plan set is_current = false where is_current;
    insert into outlog.lane_plan values (plan.generation + 1, first, resize_lanes.lane_count, names, true);
    perform outlog.know_lanes();
    return true;
end $$;

-- Server runs that relays have seen. A server that was restarted or promoted may have another clock
-- than the one that wrote the leases.
create table outlog.servers (
    incarnation text        primary key,            -- its start time and timeline
    met_at      timestamptz not null default now());

-- Whether this server run has been known for the length of a lease. Before that no relay takes a
-- lane from an owner whose lease seems to have ended.
create function outlog.knows_server(lease_us bigint) returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    me  text := extract(epoch from pg_postmaster_start_time())::text || '/'
                || left(pg_walfile_name(pg_current_wal_lsn()), 8);
    met timestamptz;
begin
    select met_at into met from outlog.servers where incarnation = me;
    if not found then
        insert into outlog.servers (incarnation) values (me) on conflict do nothing;
        delete from outlog.servers where met_at < now() - interval '30 days';
        return false;
    end if;
    if met > now() then                 -- the clock was set back since: it is met anew
        update outlog.servers set met_at = now() where incarnation = me;
        return false;
    end if;
    return met + lease_us * interval '1 microsecond' < now();
end $$;

-- Whether the lane's sequence is ahead of all that was read or stored. After a restore or on a
-- promoted replica it may give out numbers a second time, and relays would never see such a
-- message.
create function outlog.lane_is_sane(lane smallint) returns boolean
    language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(pg_sequence_last_value(p.sequences[l.lane - p.first_lane + 1]), 0)
           >= greatest(l.head, coalesce((select max(o.seq) from outlog.outbox o where o.lane = l.lane), 0))
      from outlog.lanes l join outlog.lane_plan p on l.first_lane = p.first_lane
     where l.lane = lane_is_sane.lane
$$;

-- The lanes whose sequence is not, for `outlog doctor`.
create function outlog.lanes_behind() returns smallint[]
    language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(lane order by lane) filter (where not outlog.lane_is_sane(lane)), '{}')
      from outlog.lanes
$$;

revoke all on function outlog.resize_lanes, outlog.knows_server, outlog.lane_is_sane, outlog.lanes_behind from public;
do $$ begin
    if exists (select from pg_roles where rolname = 'outlog_append') then
        grant execute on function outlog.lanes_behind to outlog_append;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_read') then
        grant execute on function outlog.lanes_behind to outlog_read;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_relay') then
        grant execute on function outlog.knows_server, outlog.lane_is_sane, outlog.lanes_behind to outlog_relay;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant execute on function outlog.resize_lanes, outlog.knows_server, outlog.lane_is_sane,
            outlog.lanes_behind to outlog_admin;
        grant select on outlog.servers to outlog_admin;
    end if;
end $$;
