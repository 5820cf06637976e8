-- What the migrations need; every `init` runs this first.
--
-- Names in views, defaults and bodies of SQL functions are resolved once, when they are created. No
-- operator or function of another schema may get into them through the session's search_path.
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
do $$ begin
    if getdatabaseencoding() <> 'UTF8' then
        raise exception using errcode = 'OL000', message = 'store_error: the database keeps text as '
            || getdatabaseencoding() || '; outlog needs one that is UTF8: make another';
    end if;
end $$;
-- Several processes may run `init` at once: one gets the lock, the others then have nothing to do.
select pg_advisory_xact_lock(7308332182);
create schema if not exists outlog;
create table if not exists outlog.schema_migrations (
    version    integer     primary key,
    name       text        not null,
    applied_at timestamptz not null default now());
