-- The audit of one log. Times are JetStream's recorded ones; the *_ns columns hold the nanoseconds that a timestamptz has no
-- room for. Positions are sequences in the stream of the row's partition. Ids are compared byte by byte (collation "C").

-- Lists show every session, in the order of listed_at: its last activity, or its beginning if it had none. It is null where
-- the session was erased. Of a branch the fork's columns say where it comes from: what its first event says. kind is what
-- the session is for, conversation or response; null where it has no kind. current_branch is the branch that its chat
-- goes on in; null where that is the session.
create table {s}.sessions (
    linked_position    bigint,
    boundary           bigint not null,
    reset_position     bigint,
    erased_position    bigint,
    described_position bigint,
    forked_position    bigint,
    created_at         timestamptz,
    last_active_at     timestamptz,
    listed_at          timestamptz,
    erased_at          timestamptz,
    finalized          integer not null,
    pending            integer not null,
    shown_finalized    integer not null,
    shown_pending      integer not null,
    partition          smallint not null,
    created_ns         smallint not null,
    last_active_ns     smallint not null,
    listed_ns          smallint,
    erased_ns          smallint not null,
    session_id         text collate "C" not null primary key,
    identity_id        text collate "C",
    kind               text,
    fork_request       text,
    forked_from        text,
    fork_root          text,
    fork_segments      text,
    title              text,
    current_branch     text,
    metadata           jsonb
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);
comment on table {s}.sessions is 'all sessions, and the closed row of erased ones';
create index sessions_listed on {s}.sessions (listed_at desc, listed_ns desc, session_id) where listed_at is not null;
create index sessions_identity on {s}.sessions (identity_id, listed_at desc, listed_ns desc, session_id)
    where listed_at is not null and identity_id is not null;

create table {s}.session_links (
    linked_position  bigint not null,
    linked_at        timestamptz not null,
    partition        smallint not null,
    session_id       text collate "C" not null primary key,
    identity_id      text collate "C" not null
);
create index session_links_identity on {s}.session_links (identity_id, linked_at);

-- A turn is a row of questions and, once it has its answer, one of answers. Were it a row that grows, each answer would write
-- the question a second time, and an entry into each index: 17 us against 4. terms are what a search by words finds turns by:
-- a number for each word of a half, made with a key that is not kept here. So no page of an index, and no row, holds a word
-- beside the texts. Rows keep their texts and terms in place up to toast_tuple_target.
create table {s}.questions (
    place               bigint not null,
    position            bigint not null,
    deleted_position    bigint,
    created_at          timestamptz not null,
    deleted_at          timestamptz,
    turn_id             uuid not null primary key,
    replaces_turn_id    uuid,
    replaced_by_turn_id uuid,
    record_version      integer not null,
    partition           smallint not null,
    created_ns          smallint not null,
    deleted_ns          smallint not null,
    translate_chat      boolean not null,
    status_before       text collate "C",
    session_id          text collate "C" not null,
    identity_id         text collate "C" not null,
    request_id          text collate "C" not null,
    pipeline_name       text,
    consultant          text,
    repository          text,
    question_neutral    text not null,
    question_translated text,
    question_messages   json,
    metadata            jsonb,
    terms               int4[],
    constraint questions_tombstone_holds_no_text check (deleted_at is null or (question_neutral = '' and
        num_nonnulls(question_translated, question_messages, metadata, pipeline_name, consultant, repository, terms) = 0))
) with (toast_tuple_target = 4080);
create unique index questions_request on {s}.questions (identity_id, session_id, request_id);
create index questions_session on {s}.questions (session_id, place, record_version);
create index questions_identity on {s}.questions (identity_id, created_at, partition, place, record_version);
create index questions_created on {s}.questions (created_at, turn_id);
create index questions_terms on {s}.questions using gin (terms);

create table {s}.answers (
    final_position                bigint,
    finalized_at                  timestamptz not null,
    turn_id                       uuid not null primary key,
    finalized_ns                  smallint not null,
    answer_translated_is_fallback boolean not null,
    answer_neutral                text,
    answer_translated             text,
    answer_messages               json,
    metadata                      jsonb,
    terms                         int4[]
) with (toast_tuple_target = 4080);
create index answers_terms on {s}.answers using gin (terms);
comment on column {s}.answers.answer_neutral is 'null in a tombstone';
comment on column {s}.answers.metadata is 'laid over that of the question';

-- Statistics hold values of rows: a redacted text, a replaced title or the terms of an erased word would live on in them.
alter table {s}.sessions
    alter column title set statistics 0,
    alter column metadata set statistics 0;
alter table {s}.questions
    alter column pipeline_name set statistics 0,
    alter column consultant set statistics 0,
    alter column repository set statistics 0,
    alter column question_neutral set statistics 0,
    alter column question_translated set statistics 0,
    alter column question_messages set statistics 0,
    alter column metadata set statistics 0,
    alter column terms set storage main,
    alter column terms set statistics 0;
alter table {s}.answers
    alter column answer_neutral set statistics 0,
    alter column answer_translated set statistics 0,
    alter column answer_messages set statistics 0,
    alter column metadata set statistics 0,
    alter column terms set storage main,
    alter column terms set statistics 0;

create view {s}.turns as
select q.turn_id, q.session_id, q.identity_id, q.request_id,
    case when q.deleted_at is not null then 'redacted' when q.replaced_by_turn_id is not null then 'replaced'
        when a.turn_id is not null then 'finalized' else 'pending' end as status,
    q.status_before, q.partition, q.place, q.position, a.final_position, q.deleted_position,
    q.created_at, q.created_ns, a.finalized_at, a.finalized_ns, q.deleted_at, q.deleted_ns,
    q.record_version, q.replaces_turn_id, q.replaced_by_turn_id, q.pipeline_name, q.consultant, q.repository, q.translate_chat,
    q.question_neutral, q.question_translated, a.answer_neutral, a.answer_translated, a.answer_translated_is_fallback,
    q.question_messages, a.answer_messages, coalesce(q.metadata || a.metadata, q.metadata, a.metadata) as metadata
from {s}.questions q left join {s}.answers a using (turn_id);
comment on view {s}.turns is 'the turns of linked sessions, with all their versions and tombstones';

-- did is what an event did to a turn, for statistics: started, answered, recorded (the answer came in one append with its
-- question), corrected or redacted; null where it did nothing to one. place and started_at are those of the turn's start, the
-- same for all its versions. Only a start names the pipeline, so that nothing does after a redaction. description_terms are
-- what a part of a title, and metadata, is found by: a number for each run of up to three characters of the title, and for
-- each key of the metadata with its value, made with the key of the terms. They stand
-- with the description that gave the title, whose row comes once and goes when the title is replaced or erased. A session's
-- own row changes with every turn, and each change would write them to the index anew.
create table {s}.event_ledger (
    seq              bigint not null,
    place            bigint,
    recorded_at      timestamptz not null,
    started_at       timestamptz,
    turn_id          uuid,
    replaces_turn_id uuid,
    partition        smallint not null,
    event_id         text collate "C" not null,
    type             text collate "C" not null,
    session_id       text collate "C",
    identity_id      text collate "C",
    did              text collate "C",
    pipeline_name    text,
    consultant       text,
    repository       text,
    description_terms int4[],
    primary key (partition, seq)
);
alter table {s}.event_ledger
    alter column pipeline_name set statistics 0,
    alter column consultant set statistics 0,
    alter column repository set statistics 0,
    alter column description_terms set statistics 0;
create index event_ledger_session on {s}.event_ledger (session_id);
create index event_ledger_erased on {s}.event_ledger (identity_id) where type = 'turnledger.identity.erased.v1';
create index event_ledger_started on {s}.event_ledger using brin (started_at) with (autosummarize = on);
create index event_ledger_described on {s}.event_ledger using gin (description_terms) where description_terms is not null;
comment on table {s}.event_ledger is 'what the log holds, without its texts';

create table {s}.security_events (
    seq              bigint not null,
    recorded_at      timestamptz not null,
    turn_id          uuid,
    partition        smallint not null,
    kind             text collate "C" not null,
    reason           text collate "C" not null,
    event_id         text collate "C" not null,
    type             text collate "C" not null,
    session_id       text collate "C",
    identity_id      text collate "C",
    source_hash      text collate "C",
    primary key (partition, seq)
);
create index security_events_time on {s}.security_events (recorded_at);
comment on column {s}.security_events.identity_id is 'who asked for the session, not whose it is';

create table {s}.projection_checkpoints (
    projection        text collate "C" not null,
    partition         smallint not null,
    stream_created_ns bigint,
    seq               bigint not null,
    event_id          bytea not null,
    epoch             bigint not null,
    applied_at        timestamptz not null default now(),
    primary key (projection, partition)
) with (fillfactor = 20);
comment on column {s}.projection_checkpoints.stream_created_ns is 'when the stream was made, in nanoseconds since 1970';

-- Which generation of the tables this schema holds: a rebuild fills the next one in a schema beside it, and the two change
-- names. store is the id that the tables have given themselves, the same in all generations: what is kept beside the log is
-- told apart by it where two databases follow one log. format is that of these tables (tables.go).
create table {s}.generation (
    number bigint not null,
    store  text not null default gen_random_uuid()::text,
    search text not null default '',
    format integer not null default 1
);
insert into {s}.generation (number) values (1);
comment on column {s}.generation.number is 'how often the tables were filled from the log';
comment on column {s}.generation.search is 'the configuration and the key that the terms were made with';
