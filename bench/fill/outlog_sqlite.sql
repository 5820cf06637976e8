insert into outlog_destinations (name, settings) values ('bench', '{"type": "null"}') on conflict do nothing;
insert into outlog_outbox (destination, event_type, payload)
with recursive n(i) as (select 1 union all select i + 1 from n where i < :count)
select 'bench', 'order.created',
       '{"order_id":"ord_' || printf('%010d', i) || '","note":"' || printf('%.364c', 'x') || '"}' from n;
