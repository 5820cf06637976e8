-- What the database itself refuses, and what it fills in, also for clients without the extension.

create trigger outlog_outbox_no_delete before delete on outlog_outbox
when not exists (select 1 from outlog_outbox_keys where org_key = '' and destination = '' and idempotency_key = 'pruning')
begin
    select raise(abort, 'read_only: DELETE of outlog_outbox: messages are never changed; kill or requeue them');
end;
-- One update is allowed, to the trigger below: filling in what a plain INSERT left out.
create trigger outlog_outbox_no_update before update on outlog_outbox
when old.at_most_once is not null
  or new.seq is not old.seq or new.event_id is not old.event_id or new.destination is not old.destination
  or new.event_type is not old.event_type or new.payload is not old.payload or new.payload_bytes is not old.payload_bytes
  or new.headers is not old.headers or new.metadata is not old.metadata or new.idempotency_key is not old.idempotency_key
  or new.ordering_key is not old.ordering_key or new.partition_key is not old.partition_key
  or new.org_id is not old.org_id
begin
    select raise(abort, 'read_only: UPDATE of outlog_outbox: messages are never changed; kill or requeue them');
end;
-- A seq of one's own lies below what relays have passed, and is never sent, or takes the numbers of all that
-- come; -1 is what SQLite shows here where none was given.
create trigger outlog_outbox_no_replace before insert on outlog_outbox
when exists (select 1 from outlog_outbox where event_id = new.event_id) or new.seq <> -1 or new.at_most_once is not null
begin
    select case when exists (select 1 from outlog_outbox where event_id = new.event_id or seq = new.seq)
                then raise(abort, 'id_conflict: a message with this event_id or seq exists')
           when new.seq <> -1 then raise(abort, 'invalid_field: seq is given out by the store; leave it out')
           when not exists (select 1 from outlog_outbox_keys where org_key = '' and destination = '' and idempotency_key = 'importing')
                then raise(abort, 'invalid_field: at_most_once is that of the destination; leave it out') end;
end;
-- A repeated key may be refused or ignored, as the INSERT says, but never replace the older message
-- (outlog_events_no_replace tells how).
create trigger outlog_outbox_no_replaced_key before insert on outlog_outbox
when new.idempotency_key is not null and exists (select 1 from outlog_outbox
     where coalesce(org_id, '') = coalesce(new.org_id, '') and destination = new.destination
       and idempotency_key = new.idempotency_key)
begin
    insert or ignore into outlog_replaced values (1);
end;
create trigger outlog_outbox_no_old_key before insert on outlog_outbox
when new.idempotency_key is not null and exists (select 1 from outlog_outbox_keys
     where org_key = coalesce(new.org_id, '') and destination = new.destination and idempotency_key = new.idempotency_key)
begin
    select raise(abort, 'UNIQUE constraint failed: this idempotency key was used before');
end;
create trigger outlog_outbox_fill after insert on outlog_outbox
when new.at_most_once is null or new.correlation_id is null
begin
    update outlog_outbox
       set created_at = case when new.at_most_once is null     -- an import brings its own
                        then strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z' else created_at end,
           correlation_id = coalesce(correlation_id, event_id),
           at_most_once = coalesce((select guarantee = 'at_most_once' from outlog_destinations
                                     where name = new.destination), 0)
     where seq = new.seq;
end;

-- E13 for a plain INSERT: what stays with us for good holds no secrets. GLOB knows those that a vendor has
-- marked; the good guesses (jwt, url_password, named_secret) need outlog_enqueue(), which looks for all.
create view outlog_secret_shapes (rule, shape) as
select v.column1, v.column2 || replace(printf('%0*d', v.column3, 0), '0', v.column4) from (values
    ('private_key', '-----BEGIN*PRIVATE KEY-----', 0, ''),
    ('private_key', '-----BEGIN*PRIVATE KEY BLOCK-----', 0, ''),
    ('aws_access_key', 'A[KSB]IA', 16, '[A-Z0-9]'),
    ('aws_access_key', 'ACCA', 16, '[A-Z0-9]'),
    ('aws_access_key', 'A3T', 17, '[A-Z0-9]'),
    ('github_token', 'gh[pousr]_', 36, '[0-9A-Za-z]'),
    ('github_pat', 'github_pat_', 8, '[0-9A-Za-z]'),
    ('stripe_live_key', '[sr]k_live_', 8, '[0-9A-Za-z]'),
    ('slack_token', 'xox[baprs]-', 8, '[0-9A-Za-z-]'),
    ('google_api_key', 'AIza', 35, '[0-9A-Za-z_-]'),
    ('gitlab_token', 'glpat-', 8, '[0-9A-Za-z_-]'),
    ('outlog_token', 'olk_', 8, '[0-9A-Za-z_]'),
    ('webhook_secret', 'whsec_', 8, '[0-9A-Za-z+/]'),
    ('webhook_signing_key', 'whsk_', 8, '[0-9A-Za-z+/]')) v;
create trigger outlog_outbox_holds_no_secret after insert on outlog_outbox
when new.metadata glob '*[_\]*' or new.metadata glob '*PRIVATE KEY*' or new.metadata glob '*A[3KSBC][TIC]*'
  or new.metadata glob '*xox*' or new.metadata glob '*AIza*' or new.metadata glob '*glpat-*'
begin
    select case r.rule
           when 'private_key' then raise(abort, 'secret_material: metadata looks like a secret (rule private_key); store a reference to it instead')
           when 'aws_access_key' then raise(abort, 'secret_material: metadata looks like a secret (rule aws_access_key); store a reference to it instead')
           when 'github_token' then raise(abort, 'secret_material: metadata looks like a secret (rule github_token); store a reference to it instead')
           when 'github_pat' then raise(abort, 'secret_material: metadata looks like a secret (rule github_pat); store a reference to it instead')
           when 'stripe_live_key' then raise(abort, 'secret_material: metadata looks like a secret (rule stripe_live_key); store a reference to it instead')
           when 'slack_token' then raise(abort, 'secret_material: metadata looks like a secret (rule slack_token); store a reference to it instead')
           when 'google_api_key' then raise(abort, 'secret_material: metadata looks like a secret (rule google_api_key); store a reference to it instead')
           when 'gitlab_token' then raise(abort, 'secret_material: metadata looks like a secret (rule gitlab_token); store a reference to it instead')
           when 'outlog_token' then raise(abort, 'secret_material: metadata looks like a secret (rule outlog_token); store a reference to it instead')
           when 'webhook_secret' then raise(abort, 'secret_material: metadata looks like a secret (rule webhook_secret); store a reference to it instead')
           when 'webhook_signing_key' then raise(abort, 'secret_material: metadata looks like a secret (rule webhook_signing_key); store a reference to it instead')
           end
      from json_tree(new.metadata) t
      join outlog_secret_shapes s
      join outlog_secret_rules r on r.rule = s.rule and r.mode = 'reject'
     where (' ' || t.key glob '*[^0-9A-Za-z]' || s.shape || '*' or t.type = 'text' and
            ' ' || replace(t.value, 'EXAMPLE', ' ') glob '*[^0-9A-Za-z]' || s.shape || '*')
       and not exists (select 1 from outlog_outbox_keys where org_key = '' and destination = '' and idempotency_key = 'importing');
end;

create trigger outlog_parked_moves_are_legal before update on outlog_parked
when new.state <> old.state and old.state || '>' || new.state not in (
     'PENDING>CLAIMED', 'CLAIMED>PENDING', 'CLAIMED>PUBLISHED', 'CLAIMED>DEAD', 'PUBLISHED>PENDING', 'DEAD>PENDING')
begin
    select raise(abort, 'illegal_transition: a message cannot make this move');
end;
create trigger outlog_parked_attempts_only_grow before update on outlog_parked
when new.attempts < old.attempts or new.attempts > old.attempts + 1
  or (new.attempts > old.attempts and not (old.state = 'PENDING' and new.state = 'CLAIMED'))
  or (old.state = 'PUBLISHED' and new.state = 'PUBLISHED' and new.published_at is not old.published_at)
  or new.seq <> old.seq or new.destination <> old.destination or new.ordering_key is not old.ordering_key
begin
    select raise(abort, 'illegal_transition: attempts only grow, and a message keeps its place');
end;
-- A row of its own begins as what the relay or an operator can know of a message, and goes only with
-- the message: without it the message would be PUBLISHED. An import brings what it became elsewhere. REPLACE
-- fires no delete triggers.
create trigger outlog_parked_begins_legally before insert on outlog_parked
when ((new.state = 'PUBLISHED' or new.attempts > 1) and not exists (select 1 from outlog_outbox_keys
          where org_key = '' and destination = '' and idempotency_key = 'importing'))
  or exists (select 1 from outlog_parked where seq = new.seq)
begin
    select raise(abort, 'illegal_transition: a message cannot begin its own row like this');
end;
create trigger outlog_parked_stays before delete on outlog_parked
when not exists (select 1 from outlog_outbox_keys where org_key = '' and destination = '' and idempotency_key = 'pruning')
begin
    select raise(abort, 'read_only: DELETE of outlog_parked: it says what became of messages');
end;
create trigger outlog_lanes_stay before delete on outlog_lanes
begin
    select raise(abort, 'read_only: DELETE of outlog_lanes: it says what became of messages');
end;
create trigger outlog_lanes_no_replace before insert on outlog_lanes
when exists (select 1 from outlog_lanes where lane = new.lane)
begin
    select raise(abort, 'read_only: a lane is never replaced');
end;
create trigger outlog_batches_no_replace before insert on outlog_batches
when exists (select 1 from outlog_batches where to_seq = new.to_seq and from_seq = new.from_seq)
begin
    insert or ignore into outlog_replaced values (1);
end;
create trigger outlog_attempts_no_replace before insert on outlog_attempts
when exists (select 1 from outlog_attempts where seq = new.seq and attempt = new.attempt)
begin
    insert or ignore into outlog_replaced values (1);
end;
create trigger outlog_batches_no_update before update on outlog_batches
begin
    select raise(abort, 'read_only: UPDATE of outlog_batches: it says what became of messages');
end;
create trigger outlog_batches_stay before delete on outlog_batches
when not exists (select 1 from outlog_outbox_keys where org_key = '' and destination = '' and idempotency_key = 'pruning')
begin
    select raise(abort, 'read_only: DELETE of outlog_batches: it says what became of messages');
end;
create trigger outlog_attempts_no_update before update on outlog_attempts
begin
    select raise(abort, 'read_only: UPDATE of outlog_attempts: it says what became of messages');
end;
create trigger outlog_attempts_stay before delete on outlog_attempts
when not exists (select 1 from outlog_outbox_keys where org_key = '' and destination = '' and idempotency_key = 'pruning')
begin
    select raise(abort, 'read_only: DELETE of outlog_attempts: it says what became of messages');
end;

create trigger outlog_lanes_only_advance before update on outlog_lanes
when new.epoch < old.epoch or new.head < old.head or new.claim_no < old.claim_no or new.parked_gen < old.parked_gen
begin
    select raise(abort, 'illegal_transition: epoch, head, claim_no and parked_gen never fall');
end;

-- The claim that a lane's update closes has been published: PostgreSQL does this in one statement.
create trigger outlog_lanes_record after update of claim_no on outlog_lanes
when new.claim_no > old.claim_no and old.claim_from is not null and new.epoch = old.epoch
begin
    insert into outlog_batches (lane, from_seq, to_seq, claimed_by, claimed_at, published_at)
    values (old.lane, old.claim_from, old.claim_to, old.owner, old.claimed_at,
            strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z');
end;

-- Routes, in the event's own transaction, whichever door it came through. What a trigger writes follows the OR of the
-- statement that fired it: under OR IGNORE and OR FAIL an event would stay whose message is refused. What DO UPDATE
-- fires does not, so each message goes by way of this row, which never changes. Events that no route takes are cheaper
-- for it: the outbox is opened for those alone that one does.
create table outlog_routing (
    is_only         integer primary key check (is_only = 1),
    event_id        integer,
    destination     text,
    idempotency_key text,
    ordering_key    text);
insert into outlog_routing (is_only) values (1);
create trigger outlog_routing_stays before delete on outlog_routing
begin
    select raise(abort, 'read_only: DELETE of outlog_routing: without its row no event is routed');
end;
create trigger outlog_routing_writes before update on outlog_routing
begin
    insert into outlog_outbox (destination, event_type, payload, org_id, idempotency_key, ordering_key,
           metadata, correlation_id, causation_id, aggregate_type, aggregate_id)
    select new.destination, e.event_type, e.payload, e.org_id, new.idempotency_key, new.ordering_key,
           case when json_extract(e.metadata, '$.traceparent') is not null
                then json_object('traceparent', json_extract(e.metadata, '$.traceparent')) end,
           e.correlation_id, e.id, e.aggregate_type, e.aggregate_id
      from outlog_events e
     where e.event_id = new.event_id    -- two routes to one destination are one message
       and not exists (select 1 from outlog_outbox o where coalesce(o.org_id, '') = coalesce(e.org_id, '')
                          and o.destination = new.destination and o.idempotency_key = new.idempotency_key);
    select raise(ignore);
end;
create trigger outlog_events_are_routed after insert on outlog_events
when exists (select 1 from outlog_routes)
begin
    insert into outlog_routing (is_only, event_id, destination, idempotency_key, ordering_key)
    select 1, new.event_id, r.destination, new.id || ':' || r.destination,
           coalesce(r.ordering_key, coalesce(new.org_id, '') || '/' || new.aggregate_type || '/' || new.aggregate_id)
      from outlog_routes r
     where new.event_type glob r.pattern
       and (r.is_audit or new.event_type not glob 'outlog.*')
       and (new.org_id is not null or r.is_audit or r.aggregate_type is not null  -- infrastructure: who names it
            or instr(replace(r.pattern, '[*]', ''), '*') = 0)
       and (r.org_id is null or r.org_id = new.org_id)
       and (r.aggregate_type is null or r.aggregate_type = new.aggregate_type)
       and (r.condition is null or not exists (
            select 1 from json_each(r.condition) c
             where replace(json_type(new.payload, c.key), 'real', 'integer') is not replace(c.type, 'real', 'integer')
                or json_extract(new.payload, c.key) is not c.value))
     order by r.name
    on conflict (is_only) do update
       set event_id = excluded.event_id, destination = excluded.destination,
           idempotency_key = excluded.idempotency_key, ordering_key = excluded.ordering_key;
end;
