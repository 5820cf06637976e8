-- Messages of about 400 bytes, as an application would send them: one destination, no keys.
insert into outlog.destinations (name, settings) values ('bench', '{"type": "null"}') on conflict do nothing;
insert into outlog.outbox (destination, event_type, payload)
select 'bench', 'order.created',
       format('{"order_id":"ord_%s","note":"%s"}', lpad(i::text, 10, '0'), repeat('x', 364))
  from generate_series(1, :count) i;
