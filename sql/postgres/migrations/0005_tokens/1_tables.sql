-- Tokens of the API (X1). Only the SHA-256 of a token is stored, never the token.
create table outlog.tokens (
    id           uuid        primary key,
    scope        text        not null,
    org_id       text,                                -- null: every org
    hash         text        not null unique,
    rate_milli   bigint      not null default 0,      -- thousandths of requests per second; 0: no limit
    created_at   timestamptz not null default clock_timestamp(),
    last_used_at timestamptz,
    revoked_at   timestamptz,
    constraint tokens_scope_is_known check (scope in ('read', 'append', 'admin')),
    constraint tokens_org_length check (octet_length(org_id) between 1 and 255)
);
do $$
begin
    if exists (select from pg_roles where rolname = 'outlog_admin') then
        grant select, insert, update on outlog.tokens to outlog_admin;
    end if;
end $$;
