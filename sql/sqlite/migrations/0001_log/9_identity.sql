-- R3: which log this is. A restored backup gives out ids again that readers have seen already with
-- other events behind them. So the log has an identity, log_id, and a new epoch with a new one
-- begins where the log may have lost its end: after a restore, in a copy of the file.
--
-- An epoch shares its events up to began_after with the epoch before. So a cursor of an older epoch
-- stays valid up to there.
create table outlog_log_epochs (
    epoch       integer primary key,
    log_id      text    not null unique,
    began_after integer not null,
    began_at    text    not null,
    reason      text    not null,       -- created, file or restored
    server      text    not null        -- which file it was in; '': not known yet
);
insert into outlog_log_epochs
select 1, substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-4' || substr(h, 13, 3) || '-a' || substr(h, 16, 3) || '-' ||
       substr(h, 19, 12), 0, strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'), 'created', ''
  from (select lower(hex(randomblob(16))) as h);
