-- A common way to write an outbox: one row with a state per message, claimed and finished by UPDATE.
create table row_outbox (
    seq             bigint      generated always as identity primary key,
    event_id        uuid        not null default gen_random_uuid(),
    event_type      text        not null,
    payload         text        not null,
    headers         json,
    ordering_key    text,
    idempotency_key text        not null,
    state           text        not null default 'PENDING',
    attempts        integer     not null default 0,
    created_at      timestamptz not null default now(),
    available_at    timestamptz not null default now(),
    claimed_at      timestamptz,
    claimed_by      text,
    published_at    timestamptz,
    last_error      text,
    constraint row_outbox_state check (state in ('PENDING', 'CLAIMED', 'PUBLISHED', 'DEAD')));
create index row_outbox_pending on row_outbox (seq) where state = 'PENDING';
create index row_outbox_claimed on row_outbox (claimed_at) where state = 'CLAIMED';
create unique index row_outbox_key on row_outbox (idempotency_key);
insert into row_outbox (event_type, payload, idempotency_key)
select 'order.created',
       format('{"order_id":"ord_%s","note":"%s"}', lpad(i::text, 10, '0'), repeat('x', 364)), 'key-' || i
  from generate_series(1, :count) i;
analyze row_outbox;
