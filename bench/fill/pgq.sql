-- PgQ 3 (Debian: postgresql-NN-pgq3): a tick every 1,000 events, as its ticker would make them.
create extension if not exists pgq;
select pgq.create_queue('bench');
select pgq.register_consumer('bench', 'relay');
select pgq.set_queue_config('bench', 'ticker_max_count', '1');
do $$
begin
    for batch in 0 .. (:count - 1) / 1000 loop
        perform pgq.insert_event('bench', 'order.created',
                    format('{"order_id":"ord_%s","note":"%s"}', lpad(i::text, 10, '0'), repeat('x', 364)))
           from generate_series(batch * 1000 + 1, least(batch * 1000 + 1000, :count)) i;
        commit;
        perform pgq.ticker('bench');
        commit;
    end loop;
end $$;
