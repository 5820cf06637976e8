-- What projections do to their tables. These functions run with the rights of the caller, in the
-- schemas of its search_path. They set no search_path, so they name all that is outlog's or
-- PostgreSQL's in full.

-- Fails when a table has rows that no projection has written: it must not be emptied.
create function outlog.projection_refuse_filled(tables json) returns void language plpgsql as $$
declare
    one   text;
    found boolean;
begin
    for one in select pg_catalog.json_array_elements_text(tables) loop
        continue when pg_catalog.to_regclass(pg_catalog.format('%I.%I', pg_catalog.current_schema(), one)) is null;
        execute pg_catalog.format('select exists (select from %I)', one) into found;
        if found then
            perform outlog.fail('illegal_transition', pg_catalog.format('table %s exists and is not empty, and no '
                'projection has filled it; drop it or choose another name', one));
        end if;
    end loop;
end $$;

create function outlog.projection_clear(tables json) returns void language plpgsql as $$
declare
    names text := (select pg_catalog.string_agg(pg_catalog.quote_ident(t), ', ')
                     from pg_catalog.json_array_elements_text(tables) t);
begin
    if names is not null then
        execute 'truncate table ' || names;
    end if;
end $$;

-- Puts a schema of the rebuild first in the search_path. The new tables are built there beside the
-- live ones: names without a schema are created there and looked up there first.
create function outlog.projection_aside(build text) returns void language plpgsql as $$
begin
    execute pg_catalog.format('create schema if not exists %I', build);
    perform pg_catalog.set_config('search_path', pg_catalog.quote_ident(build) || ', '
        || pg_catalog.current_setting('search_path'), false);
end $$;

create function outlog.projection_aside_drop(build text) returns void language plpgsql as $$
begin
    execute pg_catalog.format('drop schema if exists %I cascade', build);
end $$;

-- Replaces the live tables by the rebuilt ones, and gives those the rights of the live ones. It
-- locks outlog_build first: a worker that lost the projection and does not know it yet begins every
-- transaction there, and must not find the live tables under the names of the rebuilt ones.
create function outlog.projection_swap(build text, tables json, event_id bigint) returns void
language plpgsql as $$
declare
    built bigint;
    live  text := pg_catalog.current_schema();
    one   text;
    given record;
    old   text;
begin
    perform pg_catalog.set_config('lock_timeout', '1s', true);   -- readers wait behind this lock
    execute pg_catalog.format('lock table %I.outlog_build in access exclusive mode', build);
    execute pg_catalog.format('select event_id from %I.outlog_build', build) into built;
    if built is distinct from projection_swap.event_id then
        perform outlog.fail('unavailable', 'another worker went on with what was built; look again');
    end if;
    for one in select pg_catalog.json_array_elements_text(tables) loop
        for given in
            select a.privilege_type, a.is_grantable, case a.grantee when 0 then 'public'
                   else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) end as grantee
              from pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
             where c.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', live, one))
               and a.grantee <> c.relowner
        loop
            execute pg_catalog.format('grant %s on %I.%I to %s%s', given.privilege_type, build, one, given.grantee,
                case when given.is_grantable then ' with grant option' else '' end);
        end loop;
    end loop;
    select pg_catalog.string_agg(pg_catalog.format('%I.%I', live, t), ', ') into old
      from pg_catalog.json_array_elements_text(tables) t;
    if old is not null then
        execute 'drop table if exists ' || old;
    end if;
    for one in select pg_catalog.json_array_elements_text(tables) loop
        execute pg_catalog.format('alter table %I.%I set schema %I', build, one, live);
    end loop;
    execute pg_catalog.format('drop table %I.outlog_build', build);
    execute pg_catalog.format('drop schema %I', build);   -- fails if something is left that the tables need
end $$;

-- An object that the projection's `create` made in the current schema and that is none of its
-- tables. projection_swap could not move it.
create function outlog.projection_stranger(tables json) returns text language sql as $$
    select kind || ' ' || name from (
        select 'relation', relname from pg_catalog.pg_class
         where relnamespace = pg_catalog.current_schema()::regnamespace and relkind in ('r', 'p', 'v', 'm', 'f')
        union all
        select 'type', typname from pg_catalog.pg_type
         where typnamespace = pg_catalog.current_schema()::regnamespace and typtype in ('e', 'd', 'r')
        union all
        select 'function', proname from pg_catalog.pg_proc
         where pronamespace = pg_catalog.current_schema()::regnamespace) as made (kind, name)
     where name <> 'outlog_build' and name not in (select pg_catalog.json_array_elements_text(tables))
     order by name limit 1
$$;

-- wait_projection: waits until a projection has applied an event (P4, read-your-writes).
-- Parameters: name      of the projection
--             event_id  of a committed event: a transaction that waits for its own event waits
--                       until the timeout
--             timeout   0 to 3600 seconds, an interval or a number of seconds; default: 5 seconds
-- Returns:    true when the projection has applied the event, false when it has not in time.
-- Errors:     invalid_field (an argument is missing or out of range); not_found (no such
--             projection); misuse (not READ COMMITTED).
-- Locks:      none. It polls, so the connection is busy meanwhile.
create function outlog.wait_projection(name text, event_id bigint, timeout interval default '5 seconds')
    returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    deadline timestamptz;
    pause    double precision := 0.002;
    reached  bigint;
begin
    wait_projection.timeout := coalesce(wait_projection.timeout, '5 seconds');     -- null: the default
    if coalesce(wait_projection.event_id < 1, true) or wait_projection.name is null then
        perform outlog.fail('invalid_field', 'name and event_id are wanted');
    elsif wait_projection.timeout not between '0 seconds' and '1 hour' then
        perform outlog.fail('invalid_field', 'timeout must be 0 to 3600 seconds',
                            json_build_object('pointer', '/timeout'));
    end if;
    deadline := clock_timestamp() + wait_projection.timeout;
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        perform outlog.fail('misuse',
                            'waiting for a projection needs READ COMMITTED: an older snapshot never sees it move');
    end if;
    loop
        select c.last_applied_event_id into reached
          from outlog.projection_checkpoints c where c.name = wait_projection.name;
        if not found then
            perform outlog.fail('not_found',
                                format('no projection %s; `outlog projections` lists them', wait_projection.name));
        end if;
        if reached >= wait_projection.event_id then
            return true;
        elsif clock_timestamp() >= deadline then
            return false;
        end if;
        perform pg_sleep(least(pause, extract(epoch from deadline - clock_timestamp())));
        pause := least(pause * 2, 0.05);
    end loop;
end $$;

-- The same with seconds, and with a literal that has no type ('5', '200 ms').
create function outlog.wait_projection(name text, event_id bigint, timeout numeric) returns boolean
    language sql volatile
    return outlog.wait_projection(name, event_id, case when timeout not between 0 and 3600 then interval '-1 second'
                                                       else timeout * interval '1 second' end);
create function outlog.wait_projection(name text, event_id bigint, timeout text) returns boolean
    language sql volatile
    return outlog.wait_projection(name, event_id, timeout::interval);

revoke all on function outlog.projection_refuse_filled(json), outlog.projection_clear(json),
    outlog.projection_aside(text), outlog.projection_aside_drop(text),
    outlog.projection_swap(text, json, bigint), outlog.projection_stranger(json),
    outlog.wait_projection(text, bigint, interval), outlog.wait_projection(text, bigint, numeric),
    outlog.wait_projection(text, bigint, text) from public;

do $$
declare
    name text;
begin
    foreach name in array array['outlog_append', 'outlog_read', 'outlog_relay', 'outlog_admin'] loop
        continue when not exists (select from pg_roles where rolname = name);
        execute format('grant select on outlog.projections, outlog.projection_checkpoints, '
            'outlog.projection_skips to %I', name);
        execute format('grant execute on function outlog.wait_projection(text, bigint, interval),
            outlog.wait_projection(text, bigint, numeric), outlog.wait_projection(text, bigint, text) to %I', name);
    end loop;
    foreach name in array array['outlog_relay', 'outlog_admin'] loop
        continue when not exists (select from pg_roles where rolname = name);
        execute format('grant insert, update, delete on outlog.projection_checkpoints, outlog.projection_skips '
            'to %I', name);
        execute format('grant execute on function outlog.projection_refuse_filled(json), '
            'outlog.projection_clear(json), outlog.projection_aside(text), outlog.projection_aside_drop(text), '
            'outlog.projection_swap(text, json, bigint), outlog.projection_stranger(json) to %I', name);
    end loop;
    -- Definitions contain SQL that runs with the rights of the daemon: a relay must not write them.
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant insert, update, delete on outlog.projections to outlog_admin;
    end if;
end $$;
