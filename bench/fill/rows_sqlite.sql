create table row_outbox (
    seq             integer primary key autoincrement,
    event_id        text not null default (lower(hex(randomblob(16)))),
    event_type      text not null,
    payload         text not null,
    headers         text,
    ordering_key    text,
    idempotency_key text not null,
    state           text not null default 'PENDING' check (state in ('PENDING', 'CLAIMED', 'PUBLISHED', 'DEAD')),
    attempts        integer not null default 0,
    created_at      text not null default (datetime()),
    available_at    text not null default (datetime()),
    claimed_at      text,
    claimed_by      text,
    published_at    text,
    last_error      text);
create index row_outbox_pending on row_outbox (seq) where state = 'PENDING';
create index row_outbox_claimed on row_outbox (claimed_at) where state = 'CLAIMED';
create unique index row_outbox_key on row_outbox (idempotency_key);
insert into row_outbox (event_type, payload, idempotency_key)
with recursive n(i) as (select 1 union all select i + 1 from n where i < :count)
select 'order.created',
       '{"order_id":"ord_' || printf('%010d', i) || '","note":"' || printf('%.364c', 'x') || '"}', 'key-' || i from n;
analyze;
