-- What must stand before the first migration; run at the start of every `init`.
-- Views, defaults and the bodies of SQL functions are read now, for good: no operator or function of somebody
-- else's schema may come into them by the session's search_path.
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
do $$ begin
    if getdatabaseencoding() <> 'UTF8' then
        raise exception using errcode = 'OL000', message = 'store_error: the database keeps text as '
            || getdatabaseencoding() || '; outlog needs one that is UTF8: make another';
    end if;
end $$;
-- The lock lets several processes run `init` at once: the later ones find nothing left to do.
select pg_advisory_xact_lock(7308332182);
create schema if not exists outlog;
create table if not exists outlog.schema_migrations (
    version    integer     primary key,
    name       text        not null,
    applied_at timestamptz not null default now());
