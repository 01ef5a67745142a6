create table daily_turns (day date primary key, turns bigint not null);
create table daily_checkpoints (partition int primary key, created bigint not null, seq bigint not null, event_id bytea not null, epoch bigint not null);
