-- What a session was described with. Statistics hold values of rows: a replaced title would live on in them.
alter table {{.schema}}.sessions
    add described_position bigint,
    add title              text,
    add metadata           jsonb;
alter table {{.schema}}.sessions
    alter column title set statistics 0,
    alter column metadata set statistics 0;
-- Lists show every session, in the order of listed_at: its last activity, or its beginning if it had none. It is null where
-- the session was erased. Tables that were filled by an earlier version lack the anonymous sessions, until they are rebuilt.
alter table {{.schema}}.sessions
    add listed_at timestamptz,
    add listed_ns smallint;
update {{.schema}}.sessions set listed_at = coalesce(last_active_at, created_at),
    listed_ns = case when last_active_at is null then created_ns else last_active_ns end where erased_position is null;
alter table {{.schema}}.sessions set (autovacuum_vacuum_scale_factor = 0.02);
comment on table {{.schema}}.sessions is 'all sessions, and the closed row of erased ones';
create index sessions_listed on {{.schema}}.sessions (listed_at desc, listed_ns desc, session_id) where listed_at is not null;
create index sessions_identity on {{.schema}}.sessions (identity_id, listed_at desc, listed_ns desc, session_id)
    where listed_at is not null and identity_id is not null;
create index event_ledger_erased on {{.schema}}.event_ledger (identity_id) where type = 'turnledger.identity.erased.v1';
alter table {{.schema}}.generation add complete boolean not null default true;
update {{.schema}}.generation set complete = not exists (select from {{.schema}}.projection_checkpoints);
comment on column {{.schema}}.generation.complete is 'false: filled by a version that kept linked sessions only';
