-- Notifications (N1 … N4): which events notify whom, on which channel, with which text.

-- A version of a template never changes: a message keeps the version that was current when its
-- event was appended.
create table outlog.templates (
    name       text        not null,
    version    integer     not null,
    body       json        not null,               -- {subject, text, html}, mustache
    is_current boolean     not null default true,
    created_at timestamptz not null default now(),
    constraint templates_pkey primary key (name, version));
create unique index templates_have_one_current on outlog.templates (name) where is_current;

create table outlog.notification_rules (
    name           text    primary key,            -- made from its content, like that of a route
    pattern        text    not null,
    is_audit       boolean not null,
    org_id         text,
    aggregate_type text,
    condition      json,
    path           text,                           -- the recipients: a path into the payload,
    role           text,                           -- or a role, listed in settings as roles.<role>,
    lookup         text,                           -- or a query; $1 is the event
    email_to       text,                           -- the channels, each with its destination
    in_app_to      text,
    template       text    not null,
    category       text,                           -- null: the event type up to its first dot
    once_event     boolean not null,               -- else once per entity: S2's key
    source         json    not null,
    constraint notification_rules_say_who check (num_nonnulls(path, role, lookup) = 1));

-- Notifications in the app. The id is the message's event_id: delivering it twice changes nothing.
create table outlog.notices (
    id               uuid        primary key,
    org_id           text        not null,         -- '': none
    user_id          text        not null,
    category         text        not null,
    template         text        not null,
    template_version integer     not null,
    event_type       text        not null,
    event_id         uuid,                         -- the event's id
    aggregate_type   text,
    aggregate_id     text,
    correlation_id   text,
    subject          text,
    body_text        text,
    body_html        text,
    created_at       timestamptz not null default clock_timestamp(),
    read_at          timestamptz);
create index notices_feed on outlog.notices (org_id, user_id, created_at desc, id desc);
create index notices_unread on outlog.notices (org_id, user_id, created_at desc, id desc) where read_at is null;
create index notices_recent on outlog.notices (created_at);

-- Which notifications a user wants. A category has precedence over '*'; without a row all are sent.
create table outlog.preferences (
    org_id     text        not null,
    user_id    text        not null,
    category   text        not null,
    channel    text        not null,
    enabled    boolean     not null,
    updated_at timestamptz not null default now(),
    constraint preferences_pkey primary key (org_id, user_id, category, channel),
    constraint preferences_user_id_has_1_to_320_bytes check (octet_length(user_id) between 1 and 320),
    constraint preferences_channel_is_known check (channel in ('email', 'in_app')));

-- The mail addresses of users whose user_id is none.
create table outlog.contacts (
    org_id     text        not null,
    user_id    text        not null,
    email      text        not null,
    updated_at timestamptz not null default now(),
    constraint contacts_pkey primary key (org_id, user_id),
    constraint contacts_user_id_has_1_to_320_bytes check (octet_length(user_id) between 1 and 320));

-- Addresses that a mail server refused permanently. Nothing is sent there until a person deletes
-- the row.
create table outlog.suppressions (
    address    text collate "C" primary key,       -- in lower case
    reason     text        not null,
    created_at timestamptz not null default now());
