-- Notifications: rules, templates, the feed, preferences of users.

-- name: rule_list()
select name, source from outlog.notification_rules order by name

-- name: rule_put(name, pattern, is_audit, org_id, aggregate_type, condition, path, role, lookup, email_to, in_app_to, template, category, once_event, source)
insert into outlog.notification_rules (name, pattern, is_audit, org_id, aggregate_type, condition, path, role, lookup,
       email_to, in_app_to, template, category, once_event, source)
values (:name, :pattern, :is_audit::boolean, :org_id, :aggregate_type, :condition, :path, :role, :lookup,
       :email_to, :in_app_to, :template, :category, :once_event::boolean, :source)
on conflict (name) do nothing

-- name: rule_delete(name)
delete from outlog.notification_rules where name = :name

-- name: template_list()
select name, body from outlog.templates where is_current order by name

-- name: template_get(name, version)
select body from outlog.templates where name = :name and version = :version

-- name: template_retire(name)
update outlog.templates set is_current = false where name = :name and is_current

-- name: template_add(name, body)
-- After template_retire.
insert into outlog.templates (name, version, body)
select :name, coalesce(max(version), 0) + 1, :body from outlog.templates where name = :name

-- name: notice_address(org_id, user_id)
-- The mail address of a user.
select coalesce((select email from outlog.contacts where org_id = :org_id and user_id = :user_id),
       case when :user_id::text like '%@%' then :user_id::text end)

-- name: notice_add(id, org_id, user_id, category, template, template_version, event_type, event_id, aggregate_type, aggregate_id, correlation_id, subject, body_text, body_html)
-- In the transaction that records the message as published; a repeat changes nothing.
insert into outlog.notices (id, org_id, user_id, category, template, template_version, event_type, event_id,
       aggregate_type, aggregate_id, correlation_id, subject, body_text, body_html)
values (:id::uuid, :org_id, :user_id, :category, :template, :template_version, :event_type, :event_id::uuid,
       :aggregate_type, :aggregate_id, :correlation_id, :subject, :body_text, :body_html)
on conflict (id) do nothing

-- name: notice_feed(org_id?, user_id?, unread?, before_at?, before_id, limit literal, most_bytes?)
-- Notices of a user or of all, the newest first. most_bytes as for events_read.
select * from (                                                                                         --? most_bytes
select id, org_id, user_id, category, template, template_version, event_type, event_id, aggregate_type, aggregate_id,
       correlation_id, subject, body_text, body_html, created_at, read_at
     , sum(coalesce(octet_length(subject), 0) + coalesce(octet_length(body_text), 0)          --? most_bytes
           + coalesce(octet_length(body_html), 0)) over (order by created_at desc, id desc     --? most_bytes
           rows between unbounded preceding and 1 preceding) as bytes_before                  --? most_bytes
  from outlog.notices
 where true
   and org_id = :org_id                                             --? org_id
   and user_id = :user_id                                           --? user_id
   and (read_at is null) = :unread::boolean                         --? unread
   and (created_at, id) < (:before_at::timestamptz, :before_id::uuid)  --? before_at
 order by created_at desc, id desc limit :limit
) page where bytes_before is null or bytes_before < :most_bytes::bigint                      --? most_bytes
 order by created_at desc, id desc                                                            --? most_bytes

-- name: notice_newest(org_id, user_id, number literal)
-- The notice after which the newest `number` unread ones follow.
select created_at, id from outlog.notices
 where org_id = :org_id and user_id = :user_id and read_at is null
 order by created_at desc, id desc limit 1 offset :number

-- name: notice_recent(org_id, user_id, unread?, back_us?, after_at?, after_id, limit literal, most_bytes?)
-- Notices that may be new for a subscriber, the oldest first.
select * from (                                                                                         --? most_bytes
select id, org_id, user_id, category, template, template_version, event_type, event_id, aggregate_type, aggregate_id,
       correlation_id, subject, body_text, body_html, created_at, read_at
     , sum(coalesce(octet_length(subject), 0) + coalesce(octet_length(body_text), 0)          --? most_bytes
           + coalesce(octet_length(body_html), 0)) over (order by created_at, id               --? most_bytes
           rows between unbounded preceding and 1 preceding) as bytes_before                  --? most_bytes
  from outlog.notices
 where org_id = :org_id and user_id = :user_id
   and read_at is null                                              --? unread
   and created_at >= outlog.after(-:back_us::bigint)                --? back_us
   and (created_at, id) > (:after_at::timestamptz, :after_id::uuid)    --? after_at
 order by created_at, id limit :limit
) page where bytes_before is null or bytes_before < :most_bytes::bigint                      --? most_bytes
 order by created_at, id                                                                      --? most_bytes

-- name: notice_newly(back_us)
-- The users with new notices.
select org_id, user_id, count(*), max(created_at) from outlog.notices
 where created_at >= outlog.after(-:back_us::bigint) group by org_id, user_id

-- name: notice_get(id)
select id, org_id, user_id, category, template, template_version, event_type, event_id, aggregate_type, aggregate_id,
       correlation_id, subject, body_text, body_html, created_at, read_at
  from outlog.notices where id = :id::uuid

-- name: notice_read(id)
-- The first time counts.
update outlog.notices set read_at = outlog.after(0) where id = :id::uuid and read_at is null

-- name: notices_purge(before, limit literal)
-- A bounded chunk, so that no lock is held for long.
delete from outlog.notices where id in
       (select id from outlog.notices where created_at < :before::timestamptz order by created_at limit :limit)

-- name: preference_list(org_id, user_id)
select category, channel, enabled from outlog.preferences
 where org_id = :org_id and user_id = :user_id order by category, channel

-- name: preference_clear(org_id, user_id)
delete from outlog.preferences where org_id = :org_id and user_id = :user_id

-- name: preference_add(org_id, user_id, category, channel, enabled)
insert into outlog.preferences (org_id, user_id, category, channel, enabled)
values (:org_id, :user_id, :category, :channel, :enabled::boolean)

-- name: contact_get(org_id, user_id)
select email from outlog.contacts where org_id = :org_id and user_id = :user_id

-- name: contact_put(org_id, user_id, email)
insert into outlog.contacts (org_id, user_id, email, updated_at) values (:org_id, :user_id, :email, outlog.after(0))
on conflict (org_id, user_id) do update set email = excluded.email, updated_at = excluded.updated_at

-- name: contact_delete(org_id, user_id)
delete from outlog.contacts where org_id = :org_id and user_id = :user_id

-- name: suppression_add(address, reason)
insert into outlog.suppressions (address, reason) values (lower(:address::text), :reason)
on conflict (address) do nothing

-- name: suppression_get(address)
select reason from outlog.suppressions where address = lower(:address::text)

-- name: suppression_list(after?, limit literal)
select address, reason, created_at from outlog.suppressions
 where true
   and address > :after                                             --? after
 order by address limit :limit

-- name: suppression_delete(address)
delete from outlog.suppressions where address = lower(:address::text)
