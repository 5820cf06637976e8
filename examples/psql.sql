-- An event and an ordinary row in one transaction, in plain SQL; then a safe read.
--
--     outlog init --store postgres://localhost/app
--     psql -X postgres://localhost/app -f psql.sql

\set QUIET on
\set VERBOSITY terse
set client_min_messages = warning;
create table if not exists orders (id text primary key, total int);

\echo An order and its event, together:
begin;
insert into orders values ('o-1', 12);
select event_id, aggregate_seq
  from outlog.append(org_id => 'acme', aggregate_type => 'order', aggregate_id => 'o-1',
                     event_type => 'order.created', payload => '{"total":12}', expected_seq => 0);
commit;

\echo The payment, caused by it (the correlation comes down from the cause):
select event_id, aggregate_seq
  from outlog.append(org_id => 'acme', aggregate_type => 'order', aggregate_id => 'o-1',
                     event_type => 'order.paid', payload => '{"amount":12}', expected_seq => 1,
                     causation_id => '1', actor_type => 'user', actor_id => 'u-7');

\echo Rolled back, so neither row nor event:
begin;
insert into orders values ('o-2', 5);
select event_id, aggregate_seq
  from outlog.append(org_id => 'acme', aggregate_type => 'order', aggregate_id => 'o-2',
                     event_type => 'order.created', payload => '{"total":5}');
rollback;

\echo A lost race is refused:
select outlog.append(org_id => 'acme', aggregate_type => 'order', aggregate_id => 'o-1',
                     event_type => 'order.paid', payload => '{}', expected_seq => 1);

\echo The log, read safely:
select event_id, event_type, aggregate_id, aggregate_seq, payload from outlog.read(after => 0);
