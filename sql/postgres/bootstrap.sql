-- What must stand before the first migration; run at the start of every `init`.
-- The lock lets several processes run `init` at once: the later ones find nothing left to do.
select pg_advisory_xact_lock(7308332182);
create schema if not exists outlog;
create table if not exists outlog.schema_migrations (
    version    integer     primary key,
    name       text        not null,
    applied_at timestamptz not null default now());
