-- What a search by words finds turns by: a number for each word of a half, made with a key that is not kept here. So no
-- page of an index, and no row, holds a word beside the texts. Statistics of arrays would hold the numbers.
alter table {{.schema}}.questions
    add terms int4[],
    alter column terms set storage main,
    alter column terms set statistics 0,
    add constraint questions_tombstone_has_no_terms check (deleted_at is null or terms is null) not valid;
alter table {{.schema}}.answers
    add terms int4[],
    alter column terms set storage main,
    alter column terms set statistics 0;
-- Rows keep their texts and terms in place up to this size.
alter table {{.schema}}.questions set (toast_tuple_target = 4080);
alter table {{.schema}}.answers set (toast_tuple_target = 4080);
create index questions_terms on {{.schema}}.questions using gin (terms);
create index answers_terms on {{.schema}}.answers using gin (terms);
create index questions_created on {{.schema}}.questions (created_at, turn_id);
alter table {{.schema}}.generation
    alter column filled set default 7,
    add search text not null default '';
update {{.schema}}.generation set filled = 7 where not exists (select from {{.schema}}.projection_checkpoints);
comment on column {{.schema}}.generation.search is 'the configuration and the key that the terms were made with';
