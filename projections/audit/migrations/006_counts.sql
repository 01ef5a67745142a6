-- What an event did to a turn, for statistics: started, answered, recorded (the answer came in one append with its
-- question), corrected or redacted; null where it did nothing to one. place and started_at are those of the turn's start,
-- the same for all its versions. Only a start names the pipeline, so that nothing does after a redaction.
alter table {{.schema}}.event_ledger
    add place         bigint,
    add started_at    timestamptz,
    add did           text collate "C",
    add pipeline_name text,
    add consultant    text,
    add repository    text;
alter table {{.schema}}.event_ledger
    alter column pipeline_name set statistics 0,
    alter column consultant set statistics 0,
    alter column repository set statistics 0;
create index event_ledger_started on {{.schema}}.event_ledger using brin (started_at) with (autosummarize = on);
-- Which tables this schema was filled with: those of this migration, or of an earlier one, until they are rebuilt.
alter table {{.schema}}.generation add filled integer not null default 6;
update {{.schema}}.generation set filled = case when complete then 5 else 4 end
    where exists (select from {{.schema}}.projection_checkpoints);
alter table {{.schema}}.generation drop complete;
comment on column {{.schema}}.generation.filled is 'the number of the migration whose tables were filled from the log';
