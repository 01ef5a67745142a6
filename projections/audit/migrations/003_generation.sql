-- Which generation of the tables this schema holds: a rebuild fills the next one in a schema beside it, and the two change names.
create table {{.schema}}.generation (
    number bigint not null
);
insert into {{.schema}}.generation (number) values (1);
comment on table {{.schema}}.generation is 'how often the tables were filled from the log';
