-- The id that the tables have given themselves: dead letters and runners, which are kept beside the log, are told apart by it where
-- two databases follow one log. The tables dead_letters and runners are those of versions before.
alter table {{.schema}}.generation add store text not null default gen_random_uuid()::text;
comment on column {{.schema}}.generation.store is 'the id of these tables, the same in all generations';
