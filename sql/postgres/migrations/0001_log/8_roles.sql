-- Roles, each with the fewest rights it needs (X2). `init` creates them where it may; `outlog
-- doctor` reports those that an administrator has to create.
do $$
declare
    name text;
begin
    foreach name in array array['outlog_append', 'outlog_read', 'outlog_relay', 'outlog_admin'] loop
        if not exists (select from pg_roles where rolname = name) then
            begin
                execute format('create role %I nologin', name);
            exception
                when duplicate_object or unique_violation then null;
                when insufficient_privilege then
                    raise notice 'outlog: no right to create role %; ask an administrator', name;
            end;
        end if;
        if exists (select from pg_roles where rolname = name) then
            execute format('grant usage on schema outlog to %I', name);
        end if;
    end loop;
end $$;

revoke all on all functions in schema outlog from public;

do $$
declare
    reader text;
begin
    foreach reader in array array['outlog_append', 'outlog_read', 'outlog_relay', 'outlog_admin'] loop
        continue when not exists (select from pg_roles where rolname = reader);
        execute format('grant execute on function outlog.settled(), outlog.read(bigint, integer), '
            'outlog.fail(text, text, json), outlog.rfc3339(timestamptz) to %I', reader);
        execute format('grant select on outlog.events, outlog.event_types, outlog.strict_orgs, '
            'outlog.secret_rules, outlog.schema_migrations to %I', reader);
    end loop;
    -- An application appends through functions that check everything, and can change nothing that
    -- is written.
    if exists (select from pg_roles where rolname = 'outlog_append') then
        perform outlog.overload_rights('append');
        grant execute on function outlog.append_checked, outlog.lock_head, outlog.find_event, outlog.uuid7,
            outlog.normal_json, outlog.request_hash, outlog.derived_key, outlog.idempotency_claim,
            outlog.idempotency_get, outlog.idempotency_begin, outlog.idempotency_end to outlog_append;
    end if;
    -- A reader moves cursors through functions that check.
    if exists (select from pg_roles where rolname = 'outlog_read') then
        grant select on outlog.consumers to outlog_read;
        grant execute on function outlog.consumer_create, outlog.consumer_cursor, outlog.consumer_commit to outlog_read;
    end if;
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant execute on all functions in schema outlog to outlog_admin;
        grant select, insert, update, delete on outlog.consumers, outlog.idempotency_records,
            outlog.event_types, outlog.strict_orgs, outlog.secret_rules to outlog_admin;
    end if;
end $$;
