-- Every refusal has the SQLSTATE OL000, a message "code: what, and what to do", and the same as
-- JSON in DETAIL for programs.
create function outlog.fail(code text, message text, detail json default '{}') returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'OL000', message = code || ': ' || message,
        detail = (jsonb_build_object('code', code) || detail::jsonb)::text;
end $$;

-- E1: nobody changes the past. Statement triggers, so that TRUNCATE and updates that match no row
-- are refused too; ENABLE ALWAYS, so that session_replication_role = replica does not help.
create function outlog.refuse_change() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    perform outlog.fail('read_only', format('%s of %I.%I: events are never changed or removed; '
        'append a correction that names the wrong one as its cause', tg_op, tg_table_schema, tg_table_name));
    return null;
end $$;

create trigger events_are_immutable before update or delete or truncate on outlog.events
    for each statement execute function outlog.refuse_change();
alter table outlog.events enable always trigger events_are_immutable;
