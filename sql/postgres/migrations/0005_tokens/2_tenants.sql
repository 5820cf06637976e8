-- Row security per org (X2). For a token of one org the API reads as the role outlog_tenant, in a
-- session that names the org. Even a query without its filter then returns rows of that org only,
-- and none of the infrastructure. For other roles one thing changes: only the owner may COPY into
-- such a table.
do $$
begin
    if not exists (select from pg_roles where rolname = 'outlog_tenant') then
        begin
            create role outlog_tenant nologin;
        exception
            when duplicate_object or unique_violation then null;
            when insufficient_privilege then
                raise notice 'outlog: no right to create role outlog_tenant; ask an administrator';
        end;
    end if;
end $$;

-- Turns row security on for a table with rows of several orgs.
create function outlog.confine(confined regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    reader text;
begin
    execute format('alter table %s enable row level security', confined);
    foreach reader in array array['outlog_append', 'outlog_read', 'outlog_relay', 'outlog_admin'] loop
        if exists (select from pg_roles where rolname = reader) then
            execute format('create policy %I on %s to %I using (true) with check (true)', reader, confined, reader);
        end if;
    end loop;
    if exists (select from pg_roles where rolname = 'outlog_tenant') then
        execute format('create policy outlog_tenant on %s for select to outlog_tenant '
            'using (org_id = current_setting(''outlog.org_id'', true))', confined);
        execute format('grant select on %s to outlog_tenant', confined);
    end if;
end $$;
revoke all on function outlog.confine from public;

select outlog.confine('outlog.events');

do $$
begin
    if exists (select from pg_roles where rolname = 'outlog_tenant') then
        grant usage on schema outlog to outlog_tenant;
        grant execute on function outlog.settled(), outlog.fail(text, text, json), outlog.rfc3339(timestamptz),
            outlog.note_log(), outlog.is_server(bigint), outlog.log_limits(uuid) to outlog_tenant;
        grant select on outlog.log_epochs to outlog_tenant;
        grant select on outlog.event_types, outlog.strict_orgs, outlog.secret_rules, outlog.schema_migrations,
            outlog.consumers to outlog_tenant;
        begin
            grant outlog_tenant to current_user;
        exception when others then
            raise notice 'outlog: % may not act as outlog_tenant; ask an administrator', current_user;
        end;
    end if;
end $$;
