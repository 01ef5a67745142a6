-- What a session is for: conversation or response; null where it has no kind.
alter table {{.schema}}.sessions add kind text;
