-- O10: retention deletes published messages after a set time, with all rows about them. DEAD ones
-- stay until a person acts. Inserting a row here prunes one range of seq and leaves no row. The
-- mode `pruning` lets the deletes pass the triggers that refuse them.
create table outlog_prunings (
    after_seq integer not null,
    last_seq  integer not null,
    before    text    not null);
create trigger outlog_prunings_are_done after insert on outlog_prunings
begin
    insert into outlog_modes values ('pruning');
    insert or ignore into outlog_outbox_keys
    select coalesce(o.org_id, ''), o.destination, o.idempotency_key, o.event_id,
           strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'
      from outlog_outbox o join outlog_outbox_state s on s.seq = o.seq
     where o.seq > new.after_seq and o.seq <= new.last_seq and o.idempotency_key is not null
       and s.state = 'PUBLISHED' and s.published_at < new.before;
    delete from outlog_outbox
     where seq in (select s.seq from outlog_outbox_state s where s.seq > new.after_seq and s.seq <= new.last_seq
                      and s.state = 'PUBLISHED' and s.published_at < new.before);
    delete from outlog_parked where seq > new.after_seq and seq <= new.last_seq
       and not exists (select 1 from outlog_outbox o where o.seq = outlog_parked.seq);
    delete from outlog_attempts where seq > new.after_seq and seq <= new.last_seq
       and not exists (select 1 from outlog_outbox o where o.seq = outlog_attempts.seq);
    delete from outlog_batches where to_seq > new.after_seq and to_seq <= new.last_seq
       and not exists (select 1 from outlog_outbox o
                        where o.seq between outlog_batches.from_seq and outlog_batches.to_seq);
    delete from outlog_modes where mode = 'pruning';
    delete from outlog_prunings;
end;
create index outlog_outbox_keys_by_age on outlog_outbox_keys (kept_at);
