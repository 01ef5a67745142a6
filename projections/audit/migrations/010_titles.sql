-- What a part of a title is found by: a number for each run of up to three characters of the title, made with the key
-- of the terms. The numbers stand with the description that gave the title, whose row comes once and goes when the title
-- is replaced or erased. A session's own row changes with every turn, and each change would write them to the index
-- anew.
alter table {{.schema}}.event_ledger
    add title_grams int4[],
    alter column title_grams set statistics 0;
create index event_ledger_titles on {{.schema}}.event_ledger using gin (title_grams) where title_grams is not null;
alter table {{.schema}}.generation alter column filled set default 10;
update {{.schema}}.generation set filled = 10 where not exists (select from {{.schema}}.projection_checkpoints);
