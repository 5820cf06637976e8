-- Event types, strict orgs, rules against secrets, and the version of the schema.

-- name: schema_version()
select coalesce(max(version), 0) from outlog.schema_migrations

-- name: schema_applied(version, name)
insert into outlog.schema_migrations (version, name) values (:version, :name)

-- name: event_type_list()
select event_type, version, aggregate_type, shape, upcast, about, is_builtin
  from outlog.event_types order by event_type

-- name: event_type_put(event_type, version, aggregate_type, shape, upcast, about, is_builtin)
insert into outlog.event_types (event_type, version, aggregate_type, shape, upcast, about, is_builtin)
values (:event_type, :version, :aggregate_type, :shape, :upcast, :about, :is_builtin::boolean)
on conflict (event_type) do update set version = excluded.version,
       aggregate_type = excluded.aggregate_type, shape = excluded.shape, upcast = excluded.upcast,
       about = excluded.about, is_builtin = excluded.is_builtin

-- name: event_type_add(event_type, version, aggregate_type, shape, about)
-- A built-in type; an operator's change of it stays.
insert into outlog.event_types (event_type, version, aggregate_type, shape, about, is_builtin)
values (:event_type, :version, :aggregate_type, :shape, :about, true)
on conflict do nothing

-- name: event_type_delete(event_type)
delete from outlog.event_types where event_type = :event_type

-- name: strict_org_list()
select org_id from outlog.strict_orgs order by org_id

-- name: strict_org_add(org_id)
insert into outlog.strict_orgs (org_id) values (:org_id) on conflict do nothing

-- name: strict_org_delete(org_id)
delete from outlog.strict_orgs where org_id = :org_id

-- name: registry_load()
-- All that an append or a read needs, in one round trip: (kind, name, number, text, text). Event
-- types are needed only where an org is strict or a type has upcasts.
select 'rule' as kind, rule as name, 0 as number, mode as one, null as two from outlog.secret_rules
union all
select 'strict', org_id, 0, null, null from outlog.strict_orgs
union all
select 'type', event_type, version, shape::text, upcast::text from outlog.event_types
 where upcast is not null or exists (select 1 from outlog.strict_orgs)

-- name: secret_rule_add(rule, mode, is_key_name, pattern, entropy_min, bytes_min, except_suffix)
-- The rule of this version of outlog; the mode that an operator chose stays.
insert into outlog.secret_rules (rule, mode, mode_default, is_key_name, pattern, entropy_min, bytes_min, except_suffix)
values (:rule, :mode, :mode, :is_key_name::boolean, :pattern, :entropy_min, :bytes_min, :except_suffix)
on conflict (rule) do update set is_key_name = excluded.is_key_name, pattern = excluded.pattern,
       entropy_min = excluded.entropy_min, bytes_min = excluded.bytes_min,
       except_suffix = excluded.except_suffix, mode_default = excluded.mode_default

-- name: secret_rule_mode(rule, mode)
update outlog.secret_rules set mode = :mode where rule = :rule
