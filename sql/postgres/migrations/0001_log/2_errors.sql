-- Raises an error of outlog. Every error has the SQLSTATE OL000, the message "code: what happened,
-- and what to do", and for programs the JSON object {"code": …} with the members of detail in
-- DETAIL.
create function outlog.fail(code text, message text, detail json default '{}') returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'OL000', message = code || ': ' || message,
        detail = (jsonb_build_object('code', code) || detail::jsonb)::text;
end $$;

-- E1: events are never changed or removed. Statement triggers refuse TRUNCATE too, and updates that
-- match no row; ENABLE ALWAYS refuses them also under session_replication_role = replica.
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
