-- What the migrations need; every `init` runs this first.
create table if not exists outlog_schema_migrations (
    version    integer primary key,
    name       text    not null,
    applied_at text    not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    constraint outlog_needs_a_file_in_utf_8 check (length(cast('x' as blob)) = 1));   -- limits count bytes
