-- What a payload must be, checked in SQL with the same results as the C library
-- (base/json/parse.c): valid JSON, an object, no duplicate keys, no U+0000, no lone surrogate, at
-- most 64 levels deep, at most 256 KiB.

create function outlog.json_depth(value json) returns integer language sql immutable
begin atomic
    with recursive walk(v, depth) as (
        select value, case when json_typeof(value) in ('object', 'array') then 1 else 0 end
        union all
        select c.value, w.depth + 1
          from walk w
         cross join lateral (
               select e.value from json_each(case json_typeof(w.v) when 'object' then w.v end) e
               union all
               select a.value from json_array_elements(case json_typeof(w.v) when 'array' then w.v end) a) c
         where json_typeof(c.value) in ('object', 'array') and w.depth <= 65)
    select max(depth) from walk;
end;

create function outlog.json_repeats_a_key(value json) returns boolean language sql immutable
begin atomic
    with recursive walk(v) as (
        select value
        union all
        select c.value
          from walk w
         cross join lateral (
               select e.value from json_each(case json_typeof(w.v) when 'object' then w.v end) e
               union all
               select a.value from json_array_elements(case json_typeof(w.v) when 'array' then w.v end) a) c
         where json_typeof(c.value) in ('object', 'array'))
    select exists (select from walk cross join lateral (
               select count(*) as keys, count(distinct k) as different
                 from json_object_keys(case json_typeof(v) when 'object' then v end) k) n
            where n.keys <> n.different);
end;

-- Returns the text as json, or fails. Cheap tests come first: most payloads have no backslash and
--   few brackets, and then the count of quotes shows whether jsonb dropped a repeated key.
--
-- A backslash is written E'\\' in every function: a body is parsed with the settings of the session
-- that calls it, and with standard_conforming_strings off the literal '\' does not end.
create function outlog.checked_json(value text, field text) returns json
language plpgsql immutable
    set search_path = pg_catalog, pg_temp as $$
declare
    has_escapes boolean := position(E'\\' in value) > 0;
    parsed json;
    binary_form jsonb;
begin
    if value is null then
        perform outlog.fail('invalid_field', field || ' is required', json_build_object('pointer', '/' || field));
    end if;
    if octet_length(value) > 262144 then
        perform outlog.fail('too_large', format('%s has %s bytes, the limit is 262144', field, octet_length(value)),
                            json_build_object('pointer', '/' || field));
    end if;
    begin                                       -- a subtransaction: one for both
        parsed := value::json;
        if not has_escapes then
            binary_form := value::jsonb;
        end if;
    exception
        when numeric_value_out_of_range then null;  -- a number that json keeps and jsonb cannot
        when others then
            perform outlog.fail('invalid_json', field || ': ' || sqlerrm, json_build_object('pointer', '/' || field));
    end;
    if json_typeof(parsed) <> 'object' then
        perform outlog.fail('invalid_field', format('%s must be a JSON object, not %s', field,
                            json_typeof(parsed)), json_build_object('pointer', '/' || field));
    end if;
    if 2 * octet_length(value) - octet_length(replace(value, '{', '')) - octet_length(replace(value, '[', '')) > 64
       and outlog.json_depth(parsed) > 64 then
        perform outlog.fail('invalid_json', field || ': nested deeper than 64',
                            json_build_object('pointer', '/' || field));
    end if;
    if has_escapes and position(E'\\u' in value) > 0 then         -- U+0000 and lone surrogates
        begin
            begin
                binary_form := value::jsonb;    -- fails for them, as reading every string does
            exception when numeric_value_out_of_range then
                perform count(s.value) from outlog.json_strings(parsed) s;
            end;
        exception when others then
            perform outlog.fail('invalid_json', field || ': ' || sqlerrm, json_build_object('pointer', '/' || field));
        end;
    end if;
    if not has_escapes and binary_form is not null then
        if octet_length(value) - octet_length(replace(value, '"', ''))
           = octet_length(binary_form::text) - octet_length(replace(binary_form::text, '"', '')) then
            return parsed;
        end if;
        perform outlog.fail('invalid_json', field || ': duplicate key', json_build_object('pointer', '/' || field));
    end if;
    if outlog.json_repeats_a_key(parsed) then
        perform outlog.fail('invalid_json', field || ': duplicate key', json_build_object('pointer', '/' || field));
    end if;
    return parsed;
end $$;

-- normal_json: the canonical form of a JSON value, which request hashes are made of.
-- Returns:    keys sorted by bytes, no white space, numbers as written, strings with the fewest
--             escapes: the same bytes as ol_json_canonical() in C; null for null.
-- Errors:     none.
-- Locks:      none.
create function outlog.normal_json(value json) returns text language plpgsql immutable
    set search_path = pg_catalog, pg_temp as $$
begin
    return case json_typeof(value)
        when 'object' then '{' || coalesce((
            select string_agg(to_json(key)::text || ':' || outlog.normal_json(e.value), ','
                              order by key collate "C")
              from json_each(normal_json.value) e), '') || '}'
        when 'array' then '[' || coalesce((
            select string_agg(outlog.normal_json(e), ',' order by n)
              from json_array_elements(normal_json.value) with ordinality a(e, n)), '') || ']'
        when 'string' then to_json(value #>> '{}')::text
        else trim(value::text, E' \t\n\r')
    end;
end $$;

-- request_hash: the hash by which a repeated request is recognised.
-- Returns:    the SHA-256 of outlog.normal_json(request) in hex.
-- Errors:     none.
-- Locks:      none.
create function outlog.request_hash(request json) returns text language sql immutable
    return encode(sha256(convert_to(outlog.normal_json(request), 'UTF8')), 'hex');

-- derived_key: the deterministic idempotency key of S0 5.1 (I3).
-- Parameters: payload  JSON as text
-- Returns:    aggregate_type:aggregate_id:event_type:hash; null where an argument is.
-- Errors:     PostgreSQL's own where payload is no JSON.
-- Locks:      none.
create function outlog.derived_key(aggregate_type text, aggregate_id text, event_type text, payload text)
    returns text language sql immutable
    return aggregate_type || ':' || aggregate_id || ':' || event_type || ':' ||
           outlog.request_hash(payload::json);

-- uuid7: makes an id.
-- Returns:    a new UUIDv7: 48 bits of milliseconds by the server's clock, the rest random.
-- Errors:     none.
-- Locks:      none.
create function outlog.uuid7() returns uuid language sql volatile
    return encode(overlay(set_bit(set_bit(uuid_send(gen_random_uuid()), 52, 1), 53, 1)
                  placing substring(int8send((date_part('epoch', clock_timestamp()) * 1000)::bigint) from 3)
                  from 1 for 6), 'hex')::uuid;
