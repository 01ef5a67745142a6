package audit

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/rows"
)

// Bounds of a page.
const (
	defaultLimit = 20
	maxLimit     = 10_000
)

// IdentityTurns lists the turns of an identity over all its sessions, newest last: turns created at or after since and
// before until (zero: no bound). It returns the last limit turns (20 by default, clamped to 10,000), or the last ones
// before the cursor of the previous page. next is "" when there are no earlier turns. Redacted and replaced turns are
// left out; pending ones are not. If a session is linked between two pages, a reader that is already past its turns
// does not see them. at is the position of each partition at which the tables were read.
//
// Errors: ErrCursor, ErrUnavailable.
func (a *Audit) IdentityTurns(
	ctx context.Context, identity string, since, until time.Time, limit int, cursor string,
) (turns []Turn, at []events.Position, next string, err error) {
	before := place{created: endOfTime}
	if cursor != "" {
		if before, err = parsePlace(cursor); err != nil {
			return nil, nil, "", err
		}
	}
	if until.IsZero() {
		until = endOfTime
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	limit = min(limit, maxLimit)
	at, err = a.readAt(ctx, func(tx pgx.Tx) error {
		found, _ := tx.Query(ctx, a.sql(identityTurns), pgx.NamedArgs{
			"identity": identity, "limit": limit + 1,
			"at": before.created, "partition": before.partition, "place": before.seq, "version": before.version,
			"since": micros(since), "since_ns": rows.Nanos(since), "until": micros(until),
			"until_ns": rows.Nanos(until),
		})
		turns, err = pgx.CollectRows(found, scanTurn)
		return err
	})
	if err != nil {
		return nil, nil, "", unavailable("list the turns of an identity", err)
	}
	if len(turns) > limit {
		turns = turns[1:]
		next = placeOf(turns[0]).String()
	}
	return turns, at, next, nil
}

// identityTurns orders a partition's turns as the log does, even where the log's clock went back: at is the latest time
// up to the turn.
const identityTurns = `select ` + turnColumns + `, at from (
		select turn_id as listed, at from (
			select turn_id, session_id, partition, place, record_version, created_at, created_ns,
				deleted_at, replaced_by_turn_id,
				max(created_at) over (partition by partition order by place, record_version) as at
			from {s}.questions where identity_id = @identity) q
		where deleted_at is null and replaced_by_turn_id is null and not ` + alone + `
		and (at, partition, place, record_version) < (@at, @partition, @place, @version)
		and (created_at, created_ns) >= (@since, @since_ns) and (created_at, created_ns) < (@until, @until_ns)
		order by at desc, partition desc, place desc, record_version desc limit @limit) page
	join {s}.turns on turn_id = listed
	order by at, partition, place, record_version`

// alone says of a turn q that its session is a branch whose root was erased. Such a session has no identity any more.
// Its own link stays in the tables, for the erasure of the identity.
const alone = `exists (select from {s}.sessions b join {s}.sessions r on r.session_id = b.fork_root
		where b.session_id = q.session_id and r.erased_position is not null)`

// TurnsByID returns those of some turns that are finalized, and neither redacted nor replaced, in any order. Turns of
// erased sessions and identities are left out. at is the position of each partition at which the tables were read.
// Errors: ErrUnavailable.
func (a *Audit) TurnsByID(ctx context.Context, ids []uuid.UUID) (turns []Turn, at []events.Position, err error) {
	at, err = a.readAt(ctx, func(tx pgx.Tx) error {
		found, _ := tx.Query(ctx, a.sql(`select `+turnColumns+`, null::timestamptz from {s}.turns q
			where turn_id = any($1) and status = 'finalized' and not `+alone+`
				and not exists (select from {s}.event_ledger l
				where l.identity_id = q.identity_id and l.type = 'turnledger.identity.erased.v1')`), ids)
		turns, err = pgx.CollectRows(found, scanTurn)
		return err
	})
	if err != nil {
		return nil, nil, unavailable("read turns", err)
	}
	return turns, at, nil
}

// endOfTime is after every time that PostgreSQL is asked for here.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// place orders the turns of an identity: by time, and within a partition by the log's order.
type place struct {
	created   time.Time
	partition int
	seq       uint64
	version   int
}

func placeOf(t Turn) place { return place{micros(t.listed), t.Partition, t.Place, t.Version} }

// String is the cursor before a turn. Clients must not read it.
func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString(
		fmt.Appendf(nil, "%d.%d.%d.%d", p.created.UnixMicro(), p.partition, p.seq, p.version))
}

func parsePlace(cursor string) (place, error) {
	var p place
	var created int64
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		_, err = fmt.Sscanf(string(raw), "%d.%d.%d.%d", &created, &p.partition, &p.seq, &p.version)
	}
	p.created = time.UnixMicro(created).UTC()
	if err != nil || p.String() != cursor || !storable(p.created) || p.seq > math.MaxInt64 ||
		p.partition < 0 || p.partition > math.MaxInt16 || p.version < 0 || p.version > math.MaxInt32 {
		return place{}, ErrCursor
	}
	return p, nil
}

// storable reports whether PostgreSQL's timestamptz holds a time of a cursor.
func storable(t time.Time) bool { return t.Year() >= 1 && t.Year() <= endOfTime.Year() }

// Sessions lists at most limit sessions behind the place of a cursor, the one with the newest activity first; sessions
// with the same time are in the order of their ids. next is "" at the end. Erased sessions, and those of erased
// identities, are left out. at is the position of each partition at which the tables were read.
//
// Errors: ErrCursor, ErrUnavailable.
func (a *Audit) Sessions(
	ctx context.Context, filter projections.SessionFilter, limit int, cursor string,
) (page []projections.ListedSession, at []events.Position, next string, err error) {
	q := sessionQuery{SessionFilter: filter, args: pgx.NamedArgs{
		"limit": limit + 1, "text": projections.LastTurnText, "name": Name,
	}}
	if err := q.where(cursor); err != nil {
		return nil, nil, "", err
	}
	at, err = a.readAt(ctx, func(tx pgx.Tx) error {
		if err := a.byMetadata(ctx, tx, &q); err != nil {
			return err
		}
		if err := a.byTitle(ctx, tx, &q); err != nil {
			return err
		}
		found, _ := tx.Query(ctx, a.sql(q.page()), q.args)
		page, err = pgx.CollectRows(found, scanSession)
		return err
	})
	if err != nil {
		return nil, nil, "", unavailable("list the sessions", err)
	}
	if len(page) > limit {
		page = page[:limit]
		next = listedPlace(page[len(page)-1]).String()
	}
	return page, at, next, nil
}

// lone is alone for a row of the sessions.
const lone = `exists (select from {s}.sessions r where r.session_id = page.fork_root and r.erased_position is not null)`

const listedSessions = `with page as materialized (select s.* from {s}.sessions s where {where}
		order by s.listed_at desc, s.listed_ns desc, s.session_id limit @limit)
	select page.session_id, case when ` + lone + ` then null else page.identity_id end,
		page.created_at, page.created_ns,
		page.last_active_at, page.last_active_ns,
		page.finalized, page.pending, coalesce(page.described_position, 0), coalesce(page.title, ''),
		page.metadata, coalesce(page.kind, ''), coalesce(page.current_branch, ''),
		` + forkColumns + `, page.partition, c.seq, t.turn_id, t.answered, t.question, t.answer
	from page join {s}.projection_checkpoints c on c.partition = page.partition and c.projection = @name
	left join lateral (select q.turn_id, a.turn_id is not null as answered, left(q.question_neutral, @text) as question,
			left(a.answer_neutral, @text) as answer
		from {s}.questions q left join {s}.answers a using (turn_id)
		where page.identity_id is not null and q.session_id = page.session_id
			and q.deleted_at is null and q.replaced_by_turn_id is null
		order by q.place desc, q.record_version desc limit 1) t on true
	order by page.listed_at desc, page.listed_ns desc, page.session_id`

// sessionQuery makes the conditions of a list.
type sessionQuery struct {
	projections.SessionFilter
	args       pgx.NamedArgs
	conditions []string
}

func (q *sessionQuery) where(cursor string) error {
	q.and(`s.listed_at is not null and (s.identity_id is null or not exists (select from {s}.event_ledger l
		where l.identity_id = s.identity_id and l.type = 'turnledger.identity.erased.v1'))`, nil)
	if q.IdentityID != "" {
		q.and("s.identity_id = @identity and not "+strings.ReplaceAll(lone, "page.", "s."),
			pgx.NamedArgs{"identity": q.IdentityID})
	}
	if cursor != "" {
		after, err := parseListed(cursor)
		if err != nil {
			return err
		}
		q.and(`(s.listed_at, s.listed_ns) <= (@at, @ns::smallint)
			and ((s.listed_at, s.listed_ns) < (@at, @ns::smallint) or s.session_id > @after)`,
			pgx.NamedArgs{"at": after.at, "ns": after.ns, "after": after.id})
	}
	if !q.Since.IsZero() {
		q.and("(s.listed_at, s.listed_ns) >= (@since, @since_ns::smallint)",
			pgx.NamedArgs{"since": micros(q.Since), "since_ns": rows.Nanos(q.Since)})
	}
	if !q.Until.IsZero() {
		q.and("(s.listed_at, s.listed_ns) < (@until, @until_ns::smallint)",
			pgx.NamedArgs{"until": micros(q.Until), "until_ns": rows.Nanos(q.Until)})
	}
	if q.Kind != "" {
		q.and("s.kind = @kind", pgx.NamedArgs{"kind": string(q.Kind)})
	}
	return nil
}

// page is the statement for a page of the query's sessions.
func (q *sessionQuery) page() string {
	return strings.Replace(listedSessions, "{where}", strings.Join(q.conditions, " and "), 1)
}

func (q *sessionQuery) and(condition string, args pgx.NamedArgs) {
	q.conditions = append(q.conditions, condition)
	maps.Copy(q.args, args)
}

func scanSession(row pgx.CollectableRow) (s projections.ListedSession, err error) {
	var created, active stamp
	var is session.Description
	var fork session.Fork
	var metadata map[string]string
	var turn uuid.NullUUID
	var answered *bool
	var question, answer zeronull.Text
	err = row.Scan(&s.SessionID, (*zeronull.Text)(&s.Identity), &created.at, &created.ns, &active.at, &active.ns,
		&s.Finalized, &s.Pending, &is.DescribedAt, &is.Title, &metadata, &is.Kind, &is.CurrentBranch,
		&fork.ForkedAt, &fork.RequestID, &fork.From, &fork.Root, &fork.Lineage,
		&s.Position.Partition, &s.Position.Seq,
		&turn, &answered, &question, &answer)
	is.Metadata = session.MetadataText(rows.FromTexts(metadata))
	s.HeldDescription = session.DescribedBy(is).ForkedBy(fork)
	s.CreatedAt, s.LastActive = created.time(), active.time()
	if turn.Valid {
		s.LastTurn = &projections.LastTurn{TurnID: turn.UUID, Question: rows.FromText(string(question)),
			Answer: rows.FromText(string(answer))}
		if answered != nil && *answered {
			s.LastTurn.Status = session.Finalized
		}
	}
	return s, err
}

// listed is a place in the list of sessions.
type listed struct {
	at time.Time
	ns int
	id string
}

func listedPlace(s projections.ListedSession) listed {
	at := listedAt(s.Head)
	return listed{micros(at), rows.Nanos(at), s.SessionID}
}

// listedAt is the time by which lists order a session; zero for an erased one.
func listedAt(h session.Head) time.Time {
	switch {
	case h.Erased != 0:
		return time.Time{}
	case h.LastActive.IsZero():
		return h.CreatedAt
	default:
		return h.LastActive
	}
}

// String is the cursor after a session. Clients must not read it.
func (p listed) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "s.%d.%d.%s", p.at.UnixMicro(), p.ns, p.id))
}

func parseListed(cursor string) (p listed, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		var at int64
		_, err = fmt.Sscanf(string(raw), "s.%d.%d.", &at, &p.ns)
		p.at = time.UnixMicro(at).UTC()
		if parts := strings.SplitN(string(raw), ".", 4); len(parts) == 4 {
			p.id = parts[3]
		}
	}
	if err != nil || p.ns < 0 || p.ns > 999 || !storable(p.at) || events.ValidID(p.id) != nil || p.String() != cursor {
		return listed{}, ErrCursor
	}
	return p, nil
}
