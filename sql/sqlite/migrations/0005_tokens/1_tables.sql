-- Tokens of the API (X1). Only the SHA-256 of a token is stored, never the token.
create table outlog_tokens (
    id           text    primary key,
    scope        text    not null check (scope in ('read', 'append', 'admin')),
    org_id       text    check (length(cast(org_id as blob)) between 1 and 255),
    hash         text    not null unique,
    rate_milli   integer not null default 0,
    created_at   text    not null,
    last_used_at text,
    revoked_at   text
) without rowid;
