-- What the database itself refuses, and what it fills in, also for clients without the extension.

-- Modes that are on, one row each, in the transaction that needs them: `pruning` lets retention
-- delete messages, `importing` lets an import store what other triggers refuse. PostgreSQL has
-- settings of the transaction for this (outlog.pruning, outlog.importing).
create table outlog_modes (
    mode text primary key,
    constraint modes_mode_is_known check (mode in ('pruning', 'importing'))
) without rowid;

create trigger outlog_outbox_no_delete before delete on outlog_outbox
when not exists (select 1 from outlog_modes where mode = 'pruning')
begin
    select raise(abort, 'read_only: DELETE of outlog_outbox: messages are never changed; kill or requeue them');
end;
-- Only the trigger outlog_outbox_fill may update a message: it sets what a plain INSERT left out.
create trigger outlog_outbox_no_update before update on outlog_outbox
when old.at_most_once is not null
  or new.seq is not old.seq
  --= message columns: or new.{name} is not old.{name}
  --=| created_at:
  --=| correlation_id:
  --=| at_most_once:
begin
    select raise(abort, 'read_only: UPDATE of outlog_outbox: messages are never changed; kill or requeue them');
end;
-- A seq given by the client could be below what relays have passed, and the message would never be
-- sent; or so high that no number is left for others. Where none is given SQLite shows -1 here.
create trigger outlog_outbox_no_replace before insert on outlog_outbox
when exists (select 1 from outlog_outbox where event_id = new.event_id) or new.seq <> -1 or new.at_most_once is not null
begin
    select case when exists (select 1 from outlog_outbox where event_id = new.event_id or seq = new.seq)
                then raise(abort, 'id_conflict: a message with this event_id or seq exists')
           when new.seq <> -1 then raise(abort, 'invalid_field: seq is given out by the store; leave it out')
           when not exists (select 1 from outlog_modes where mode = 'importing')
                then raise(abort, 'invalid_field: at_most_once is that of the destination; leave it out') end;
end;
-- A repeated key may be refused or ignored, as the INSERT demands, but must never replace the older
-- message (outlog_events_no_replace explains how).
create trigger outlog_outbox_no_replaced_key before insert on outlog_outbox
when new.idempotency_key is not null and exists (select 1 from outlog_outbox
     where coalesce(org_id, '') = coalesce(new.org_id, '') and destination = new.destination
       and idempotency_key = new.idempotency_key)
begin
    insert or ignore into outlog_replaced values (1);
end;
create trigger outlog_outbox_no_old_key before insert on outlog_outbox
when new.idempotency_key is not null and exists (select 1 from outlog_outbox_keys
     where org_key = coalesce(new.org_id, '') and destination = new.destination
       and idempotency_key = new.idempotency_key)
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

-- E13 for a plain INSERT: metadata is kept for good, so it must not hold secrets. outlog_enqueue()
-- checks all rules, this trigger those that GLOB can find (outlog_secret_shapes). The condition is
-- a quick test that most metadata does not pass. An import keeps what the other store accepted.
create trigger outlog_outbox_holds_no_secret after insert on outlog_outbox
when (
    --= secret_hints(new.metadata)
) and not exists (select 1 from outlog_modes where mode = 'importing')
begin
    select
        --= secret_refusals(metadata)
      from (select key as value from json_tree(new.metadata)
            union all
            select value from json_tree(new.metadata) where type = 'text') t
      join outlog_secret_shapes s on ' ' || t.value glob s.shape
      join outlog_secret_rules r on r.rule = s.rule and r.mode = 'reject'
     where s.label is null or exists (   -- the texts after each head
           select 1 from json_each('[' || replace(json_quote(t.value), s.head, '","') || ']') p
            where p.key > 0 and instr(p.value, s.label_end) between 1 and s.label_max + 1
              and substr(p.value, 1, instr(p.value, s.label_end) - 1) not glob '*[^' || s.label || ']*');
end;

-- O7, O4: the only changes that a parked message can make.
create trigger outlog_parked_moves_are_legal before update on outlog_parked
when new.state <> old.state and old.state || '>' || new.state not in (
    --= message_transitions()
)
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
-- A parked row starts in a state that a relay or an operator can cause, and is deleted only with
-- its message: without the row the message would count as PUBLISHED. An import brings the state
-- that the message had in the other store. REPLACE fires no delete triggers, so it is refused here.
create trigger outlog_parked_begins_legally before insert on outlog_parked
when ((new.state = 'PUBLISHED' or new.attempts > 1)
      and not exists (select 1 from outlog_modes where mode = 'importing'))
  or exists (select 1 from outlog_parked where seq = new.seq)
begin
    select raise(abort, 'illegal_transition: a message cannot begin its own row like this');
end;
create trigger outlog_parked_stays before delete on outlog_parked
when not exists (select 1 from outlog_modes where mode = 'pruning')
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
when exists (select 1 from outlog_batches where destination = new.destination and org_key = new.org_key
                and to_seq = new.to_seq and from_seq = new.from_seq)
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
when not exists (select 1 from outlog_modes where mode = 'pruning')
begin
    select raise(abort, 'read_only: DELETE of outlog_batches: it says what became of messages');
end;
create trigger outlog_attempts_no_update before update on outlog_attempts
begin
    select raise(abort, 'read_only: UPDATE of outlog_attempts: it says what became of messages');
end;
create trigger outlog_attempts_stay before delete on outlog_attempts
when not exists (select 1 from outlog_modes where mode = 'pruning')
begin
    select raise(abort, 'read_only: DELETE of outlog_attempts: it says what became of messages');
end;

create trigger outlog_lanes_only_advance before update on outlog_lanes
when new.epoch < old.epoch or new.head < old.head or new.claim_no < old.claim_no or new.parked_gen < old.parked_gen
begin
    select raise(abort, 'illegal_transition: epoch, head, claim_no and parked_gen never fall');
end;

-- When an update of a lane ends its claim, the claimed messages were published. PostgreSQL records
-- this in the same statement.
create trigger outlog_lanes_record after update of claim_no on outlog_lanes
when new.claim_no > old.claim_no and old.claim_from is not null and new.epoch = old.epoch
begin
    insert into outlog_batches (lane, from_seq, to_seq, claimed_by, claimed_at, published_at)
    values (old.lane, old.claim_from, old.claim_to, old.owner, old.claimed_at,
            strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z');
end;

-- The setting secrets.<rule> is the mode of a rule against secrets (E13). Without it the default
-- holds.
create trigger outlog_settings_rule_secrets after insert on outlog_settings when new.key like 'secrets.%'
begin
    update outlog_secret_rules set mode = trim(new.value, '"') where 'secrets.' || rule = new.key;
end;
create trigger outlog_settings_change_secrets after update on outlog_settings when new.key like 'secrets.%'
begin
    update outlog_secret_rules set mode = trim(new.value, '"') where 'secrets.' || rule = new.key;
end;
create trigger outlog_settings_free_secrets after delete on outlog_settings when old.key like 'secrets.%'
begin
    update outlog_secret_rules set mode = mode_default where 'secrets.' || rule = old.key;
end;

create trigger outlog_side_cursors_only_advance before update on outlog_side_cursors
when new.head < old.head or new.claim_no < old.claim_no or new.lane <> old.lane or new.since <> old.since
  or new.destination <> old.destination or new.org_key <> old.org_key
begin
    select raise(abort, 'illegal_transition: a side cursor only advances');
end;
create trigger outlog_side_cursors_no_replace before insert on outlog_side_cursors
when exists (select 1 from outlog_side_cursors where lane = new.lane and destination = new.destination
                and org_key = new.org_key)
begin
    select raise(abort, 'read_only: a side cursor is never replaced');
end;
create trigger outlog_side_cursors_stay before delete on outlog_side_cursors
when old.claim_from is not null
begin
    select raise(abort, 'illegal_transition: a side cursor with an open claim cannot be closed');
end;
create trigger outlog_side_cursors_record after update of claim_no on outlog_side_cursors
when new.claim_no > old.claim_no and old.claim_from is not null and new.epoch = old.epoch
begin
    insert into outlog_batches (lane, destination, org_key, from_seq, to_seq, claimed_by, claimed_at, published_at)
    values (old.lane, old.destination, old.org_key, old.claim_from, old.claim_to,
            (select owner from outlog_lanes where lane = old.lane), old.claimed_at,
            strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z');
end;
