-- E13 for the SQL functions: no secret material in events. The rules are rows of
-- outlog.secret_rules; `outlog init` writes them from sql/schema/secret_rules.json, as it was
-- compiled into the C library.

-- Bits per byte of the UTF-8 text.
create function outlog.entropy(value text) returns double precision language sql immutable
begin atomic
    select coalesce(-sum(share * log(2.0, share)), 0)::double precision
      from (select count(*)::numeric / octet_length(value) as share
              from generate_series(0, octet_length(value) - 1) i
             group by get_byte(convert_to(value, 'UTF8'), i)) f;
end;

-- Every string of a document with its JSON pointer; also the name of every member, with the pointer
-- of its object.
create function outlog.json_strings(document json)
    returns table (pointer text, name text, value text, is_name boolean) language sql immutable
begin atomic
    with recursive walk(outer_pointer, pointer, name, v) as (
        select '', '', null::text, document
        union all
        select w.pointer, w.pointer || '/' || replace(replace(c.k, '~', '~0'), '/', '~1'), c.name, c.value
          from walk w
         cross join lateral (
               select e.key as k, e.key as name, e.value
                 from json_each(case json_typeof(w.v) when 'object' then w.v end) e
               union all
               select (a.n - 1)::text, null, a.value
                 from json_array_elements(case json_typeof(w.v) when 'array' then w.v end)
                      with ordinality a(value, n)) c)
    select w.pointer, w.name, w.v #>> '{}', false from walk w where json_typeof(w.v) = 'string'
    union all
    select w.outer_pointer, null, w.name, true from walk w where w.name is not null;
end;

-- A pointer without a secret: a member's name in it may be one, and then it is cut off there.
create function outlog.safe_pointer(pointer text) returns text language plpgsql stable
    set search_path = pg_catalog, pg_temp as $$
begin
    while exists (select from outlog.secret_rules r
                   where not r.is_key_name and replace(pointer, '~1', '/') ~ r.pattern) loop
        pointer := regexp_replace(pointer, '/[^/]*$', '');
    end loop;
    return pointer;
end $$;

-- Fails with secret_material where a rule with mode reject matches a string or a name of the
-- document; a rule with mode warn raises a WARNING. Neither contains the secret.
create function outlog.refuse_secrets(document json, field text) returns void
language plpgsql stable
    set search_path = pg_catalog, pg_temp as $$
declare
    found record;
    raw text := document::text;
begin
    -- A quick test that most documents do not pass: nothing like the beginning of a secret.
    if position(E'\\' in raw) = 0 and raw !~* (
        --= secret_hints()
    ) then
        return;
    end if;
    for found in
        select outlog.safe_pointer(s.pointer) as pointer, r.rule, r.mode
          from outlog.json_strings(document) s
          join outlog.secret_rules r on r.mode <> 'off'
         cross join lateral (
               select s.value where r.is_key_name and not s.is_name and s.name ~ r.pattern
               union all
               select g[1] from regexp_matches(s.value, r.pattern, 'g') g
                where not r.is_key_name) m(secret)
         where octet_length(m.secret) >= greatest(r.bytes_min, 1)
           and (r.except_suffix is null or right(m.secret, length(r.except_suffix)) <> r.except_suffix)
           and (r.entropy_min = 0 or outlog.entropy(m.secret) >= r.entropy_min)
         order by r.mode, s.pointer, r.rule
    loop
        if found.mode = 'reject' then
            perform outlog.fail('secret_material', format('%s%s looks like a secret (rule %s); store a '
                'reference to it instead', field, found.pointer, found.rule),
                json_build_object('pointer', '/' || field || found.pointer, 'rule', found.rule));
        end if;
        raise warning 'outlog: % looks like a secret (rule %)', field || found.pointer, found.rule;
    end loop;
end $$;
