-- Where a branch comes from: what its first event says. Shared turns are rows of the sessions that they stand in.
alter table {{.schema}}.sessions
    add forked_position bigint,
    add fork_request    text,
    add forked_from     text,
    add fork_root       text,
    add fork_segments   text;
