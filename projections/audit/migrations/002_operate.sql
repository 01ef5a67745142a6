-- Who feeds the tables. Nothing is lost with it: runners that live say so each second.
create unlogged table {{.schema}}.runners (
    projection text collate "C" not null,
    member     text collate "C" not null,
    seen_at    timestamptz not null,
    primary key (projection, member)
) with (fillfactor = 20);

alter table {{.schema}}.dead_letters
    add dropped_at  timestamptz,
    add dropped_by  text,
    add drop_reason text;
