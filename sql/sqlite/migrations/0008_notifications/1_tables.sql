-- Notifications; PostgreSQL's migration of the same name explains the tables.

create table outlog_templates (
    name       text    not null,
    version    integer not null,
    body       text    not null,
    is_current integer not null default 1,
    created_at text    not null default (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    primary key (name, version)) without rowid;
create unique index outlog_templates_have_one_current on outlog_templates (name) where is_current;

create table outlog_notification_rules (
    name           text    primary key,
    pattern        text    not null,               -- as GLOB
    is_audit       integer not null,
    org_id         text,
    aggregate_type text,
    condition      text,                           -- {"$.path": value}
    path           text,                           -- $.path
    role           text,
    lookup         text,                           -- runs in a trigger that `apply` creates
    email_to       text,
    in_app_to      text,
    template       text    not null,
    category       text,
    once_event     integer not null,
    source         text    not null,
    constraint notification_rules_say_who check ((path is null) + (role is null) + (lookup is null) = 2)
) without rowid;

create table outlog_notices (
    id               text    primary key,
    org_id           text    not null,
    user_id          text    not null,
    category         text    not null,
    template         text    not null,
    template_version integer not null,
    event_type       text    not null,
    event_id         text,
    aggregate_type   text,
    aggregate_id     text,
    correlation_id   text,
    subject          text,
    body_text        text,
    body_html        text,
    created_at       text    not null default (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    read_at          text) without rowid;
create index outlog_notices_feed on outlog_notices (org_id, user_id, created_at desc, id desc);
create index outlog_notices_unread on outlog_notices (org_id, user_id, created_at desc, id desc) where read_at is null;
create index outlog_notices_recent on outlog_notices (created_at);

create table outlog_preferences (
    org_id     text    not null,
    user_id    text    not null,
    category   text    not null,
    channel    text    not null check (channel in ('email', 'in_app')),
    enabled    integer not null,
    updated_at text    not null default (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    primary key (org_id, user_id, category, channel),
    constraint preferences_user_id_has_1_to_320_bytes check (length(cast(user_id as blob)) between 1 and 320)
) without rowid;

create table outlog_contacts (
    org_id     text not null,
    user_id    text not null,
    email      text not null,
    updated_at text not null default (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    primary key (org_id, user_id),
    constraint contacts_user_id_has_1_to_320_bytes check (length(cast(user_id as blob)) between 1 and 320)
) without rowid;

create table outlog_suppressions (
    address    text primary key,
    reason     text not null,
    created_at text not null default (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')) without rowid;
