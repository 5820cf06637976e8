-- What outlog is compared with: outlog.events without outlog. The same columns in the same order, of
-- the same types without their limits, with the same indexes; no trigger, no heads. `triggered` also
-- has the trigger that holds back the settled position, to measure its cost.
create schema bench;
create table bench.bare (like outlog.events including defaults including identity including storage including indexes);
create table bench.triggered (like bench.bare including all);
do $$
declare
    of record;
begin
    for of in select a.attrelid::regclass as tab, a.attname as name, t.typbasetype::regtype as base,
                     case when t.typcollation <> 0 then 'collate "C"' end as collation
                from pg_attribute a join pg_type t on t.oid = a.atttypid and t.typtype = 'd'
               where a.attrelid in ('bench.bare'::regclass, 'bench.triggered'::regclass) loop
        execute format('alter table %s alter %I type %s %s', of.tab, of.name, of.base, of.collation);
    end loop;
end $$;
create trigger hold_settled before insert on bench.triggered
    for each statement execute function outlog.hold_settled();
