-- What the database itself refuses, for every role.

-- O2: a message never changes. Retention deletes published ones, with outlog.pruning on. Everybody
-- can set that, so the rows that went are looked at again: see refuse_pruning.
create function outlog.refuse_message_change() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' and current_setting('outlog.pruning', true) = 'on' then
        return null;
    end if;
    perform outlog.fail('read_only',
                        format('%s of outlog.outbox: messages are never changed; kill or requeue them', tg_op));
    return null;
end $$;
create trigger outbox_is_immutable before update or delete or truncate on outlog.outbox
    for each statement execute function outlog.refuse_message_change();
alter table outlog.outbox enable always trigger outbox_is_immutable;

-- Every INSERT of a message needs the lanes of the current plan, and whether its destination allows
-- no second attempt. A query per message would cost as much as all the rest of its insert. So
-- functions return these as constants, which become part of the trigger's expressions, and are
-- replaced when the values change. A session drops its plans at the latest when it next locks the
-- outbox in a transaction; a transaction that has the lock already continues with the old values.
create function outlog.know_lanes() returns void language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    plan outlog.lane_plan;
begin
    select * into strict plan from outlog.lane_plan p where p.is_current;
    execute format('create or replace function outlog.lane_count() returns integer language sql immutable '
                   'return %s', plan.lane_count);
    execute format('create or replace function outlog.lane_first() returns smallint language sql immutable '
                   'return %s::smallint', plan.first_lane);
    execute format('create or replace function outlog.lane_sequence(lane_index integer) returns regclass '
                   'language sql immutable as %L',  -- as text: a dump would not know it needs the sequences
                   format('select (%L::regclass[])[lane_index + 1]', plan.sequences::text[]));
end $$;
select outlog.know_lanes();

create function outlog.is_at_most_once(destination text) returns boolean language sql immutable return false;

-- After the first such destination every message must look it up.
create function outlog.know_guarantees() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(28492, 3);       -- two at once could not write one function
    if (select provolatile from pg_proc where oid = 'outlog.is_at_most_once(text)'::regprocedure) = 'i' then
        create or replace function outlog.is_at_most_once(destination text) returns boolean language sql stable
            return exists (select from outlog.destinations d where d.name = $1 and d.guarantee = 'at_most_once');
    end if;
    return null;
end $$;
create trigger destinations_tell_guarantees after insert or update on outlog.destinations
    for each row when (new.guarantee = 'at_most_once') execute function outlog.know_guarantees();
alter table outlog.destinations enable always trigger destinations_tell_guarantees;

-- A plain INSERT needs destination, event_type and payload; this sets the rest. The lane comes from
-- a hash of the destination and the ordering key. Without an ordering key it comes from the first
-- 48 bits of the id, which in a UUIDv7 are the millisecond: messages that are written together are
-- then next to each other in the table and are read together. The hash must never change. nextval
-- runs inside the INSERT, under the lock on the table: that lets a relay recognise a number that
-- will never be used. This runs for every message, so it makes no query without need.
create function outlog.number_message() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    lane_index integer :=
        ('x' || left(md5(new.destination || chr(31) || coalesce(new.ordering_key, left(new.event_id::text, 13))),
                     7))::bit(28)::int % outlog.lane_count();
begin
    if new.idempotency_key is not null then
        if exists (select from outlog.outbox_keys k
                    where k.org_key = coalesce(new.org_id, '') and k.destination = new.destination
                      and k.idempotency_key = new.idempotency_key) then
            raise unique_violation using message = format('idempotency key %s was used before', new.idempotency_key);
        end if;
    end if;
    new.created_at := clock_timestamp();        -- also where the INSERT names another time
    new.correlation_id := coalesce(new.correlation_id, new.event_id::text);
    new.at_most_once := outlog.is_at_most_once(new.destination);
    new.lane := outlog.lane_first() + lane_index;
    new.seq := nextval(outlog.lane_sequence(lane_index));
    return new;
end $$;
create trigger outbox_is_numbered before insert on outlog.outbox
    for each row when (new.seq is null) execute function outlog.number_message();
alter table outlog.outbox enable always trigger outbox_is_numbered;

-- E13: metadata is kept for good, so it must not hold secrets, whoever inserts it. An import (it
-- sets seq) keeps what the other store accepted; the traceparent that routes copy cannot be a
-- secret.
create function outlog.guard_metadata() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform outlog.refuse_secrets(new.metadata, 'metadata');
    return new;
end $$;
create trigger outbox_holds_no_secret before insert on outlog.outbox     -- before it is numbered
    for each row when (new.metadata is not null and new.seq is null
                       and new.metadata::text !~ '^{"traceparent" ?: ?"[0-9a-f-]{55}"}$')
    execute function outlog.guard_metadata();
alter table outlog.outbox enable always trigger outbox_holds_no_secret;

-- O7, O4: the only changes that a parked message can make.
create function outlog.guard_parked() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    if new.state <> old.state and (old.state, new.state) not in (
        --= message_transitions()
    ) then
        perform outlog.fail('illegal_transition', format('message %s/%s cannot go from %s to %s', old.lane, old.seq,
                                                         old.state, new.state));
    end if;
    if new.attempts < old.attempts or new.attempts > old.attempts + 1
       or (new.attempts > old.attempts and not (old.state = 'PENDING' and new.state = 'CLAIMED')) then
        perform outlog.fail('illegal_transition', format('attempts of message %s/%s cannot go from %s to %s',
                                                         old.lane, old.seq, old.attempts, new.attempts));
    end if;
    if new.state = 'PUBLISHED' and old.state = 'PUBLISHED' and new.published_at <> old.published_at then
        perform outlog.fail('illegal_transition', 'published_at never changes');
    end if;
    if (new.lane, new.seq, new.destination, new.ordering_key)
       is distinct from (old.lane, old.seq, old.destination, old.ordering_key) then
        perform outlog.fail('illegal_transition', 'a parked message keeps its place');
    end if;
    return new;
end $$;
create trigger parked_moves_are_legal before update on outlog.parked
    for each row execute function outlog.guard_parked();
alter table outlog.parked enable always trigger parked_moves_are_legal;

-- A parked row starts in a state that a relay or an operator can cause, and is deleted only with
-- its message: without the row the message would count as PUBLISHED. An import, with
-- outlog.importing on, brings the state that the message had in the other store.
create function outlog.guard_parked_birth() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    if (new.state = 'PUBLISHED' or new.attempts > 1)
       and current_setting('outlog.importing', true) is distinct from 'on' then
        perform outlog.fail('illegal_transition', format('message %s/%s cannot begin its own row as %s with %s '
            'attempts', new.lane, new.seq, new.state, new.attempts));
    end if;
    return new;
end $$;
create trigger parked_begins_legally before insert on outlog.parked
    for each row execute function outlog.guard_parked_birth();
alter table outlog.parked enable always trigger parked_begins_legally;

create function outlog.refuse_removal() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' and current_setting('outlog.pruning', true) = 'on' then
        return null;
    end if;
    perform outlog.fail('read_only', format('%s of outlog.%s: it says what became of messages', tg_op, tg_table_name));
    return null;
end $$;
create trigger parked_stays before delete or truncate on outlog.parked
    for each statement execute function outlog.refuse_removal();
create function outlog.refuse_lane_removal() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    perform outlog.fail('read_only', format('%s of outlog.lanes: it says what became of messages', tg_op));
    return null;
end $$;
create trigger lanes_stay before delete or truncate on outlog.lanes
    for each statement execute function outlog.refuse_lane_removal();
create trigger batches_stay before update or delete or truncate on outlog.batches
    for each statement execute function outlog.refuse_removal();
create trigger attempts_stay before update or delete or truncate on outlog.attempts
    for each statement execute function outlog.refuse_removal();
alter table outlog.parked enable always trigger parked_stays;
alter table outlog.lanes enable always trigger lanes_stay;
alter table outlog.batches enable always trigger batches_stay;
alter table outlog.attempts enable always trigger attempts_stay;

-- R5: whoever deletes, a message goes only when it was PUBLISHED, and what is known about it only
-- with the message.
create function outlog.refuse_pruning() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
declare
    lost record;
begin
    if tg_table_name = 'outbox' then
        select g.lane, g.seq into lost from gone g
          join outlog.lanes l on l.lane = g.lane
          left join outlog.parked p on p.lane = g.lane and p.seq = g.seq
         where case when p.seq is not null then p.state <> 'PUBLISHED'
                    else g.seq > l.head or l.gaps @> g.seq or l.claim @> g.seq end limit 1;
    elsif tg_table_name = 'batches' then
        select g.lane, g.to_seq as seq into lost from gone g
         where exists (select from outlog.outbox o where o.lane = g.lane and o.seq between g.from_seq and g.to_seq)
         limit 1;
    else
        select g.lane, g.seq into lost from gone g
         where exists (select from outlog.outbox o where o.lane = g.lane and o.seq = g.seq) limit 1;
    end if;
    if lost.lane is not null then
        perform outlog.fail('read_only', format('DELETE of outlog.%s: message %s/%s is not one that retention may '
                            'remove; kill or requeue it', tg_table_name, lost.lane, lost.seq));
    end if;
    return null;
end $$;
create trigger outbox_keeps_what_is_open after delete on outlog.outbox
    referencing old table as gone for each statement execute function outlog.refuse_pruning();
create trigger parked_stays_with_its_message after delete on outlog.parked
    referencing old table as gone for each statement execute function outlog.refuse_pruning();
create trigger batches_stay_with_their_messages after delete on outlog.batches
    referencing old table as gone for each statement execute function outlog.refuse_pruning();
create trigger attempts_stay_with_their_message after delete on outlog.attempts
    referencing old table as gone for each statement execute function outlog.refuse_pruning();
alter table outlog.outbox enable always trigger outbox_keeps_what_is_open;
alter table outlog.parked enable always trigger parked_stays_with_its_message;
alter table outlog.batches enable always trigger batches_stay_with_their_messages;
alter table outlog.attempts enable always trigger attempts_stay_with_their_message;

create function outlog.guard_lane() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    if new.epoch < old.epoch or new.head < old.head or new.claim_no < old.claim_no
       or new.parked_gen < old.parked_gen then
        perform outlog.fail('illegal_transition',
                            format('lane %s: epoch, head, claim_no and parked_gen never fall', old.lane));
    end if;
    if not isempty(new.gaps) and not (new.gaps <@ (old.gaps + int8multirange(int8range(old.head + 1, null)))) then
        perform outlog.fail('illegal_transition', format('lane %s: a gap cannot open below the head', old.lane));
    end if;
    return new;
end $$;
create trigger lanes_only_advance before update on outlog.lanes
    for each row execute function outlog.guard_lane();
alter table outlog.lanes enable always trigger lanes_only_advance;

create function outlog.guard_side_cursor() returns trigger language plpgsql
    set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        if not isempty(old.claim) then
            perform outlog.fail('illegal_transition', format('lane %s: the side cursor of %s has an open claim',
                                                             old.lane, old.destination));
        end if;
        return old;
    end if;
    if new.head < old.head or new.claim_no < old.claim_no
       or (new.lane, new.destination, new.org_key, new.since)
          is distinct from (old.lane, old.destination, old.org_key, old.since) then
        perform outlog.fail('illegal_transition', format('lane %s: the side cursor of %s only advances',
                                                         old.lane, old.destination));
    end if;
    return new;
end $$;
create trigger side_cursors_only_advance before update or delete on outlog.side_cursors
    for each row execute function outlog.guard_side_cursor();
create trigger side_cursors_stay before truncate on outlog.side_cursors
    for each statement execute function outlog.refuse_removal();
alter table outlog.side_cursors enable always trigger side_cursors_only_advance;
alter table outlog.side_cursors enable always trigger side_cursors_stay;

-- Microseconds from now by the database's clock, which leases and retry times use.
create function outlog.after(us bigint) returns timestamptz language sql stable
    return now() + us * interval '1 microsecond';

-- The setting secrets.<rule> is the mode of a rule against secrets (E13). Without it the default
-- holds.
create function outlog.set_secret_mode() returns trigger language plpgsql
    security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        update outlog.secret_rules r set mode = r.mode_default where 'secrets.' || r.rule = old.key;
    else
        update outlog.secret_rules r set mode = new.value #>> '{}' where 'secrets.' || r.rule = new.key;
    end if;
    return null;
end $$;
create trigger settings_rule_secrets after insert or update on outlog.settings
    for each row when (new.key like 'secrets.%') execute function outlog.set_secret_mode();
create trigger settings_free_secrets after delete on outlog.settings
    for each row when (old.key like 'secrets.%') execute function outlog.set_secret_mode();
