package audit

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/projections/audit/rows"
)

// Bounds of a page.
const (
	defaultLimit = 20
	maxLimit     = 10_000
)

// IdentityTurns lists the turns of an identity over all its sessions, newest last: those created at or after since and
// before until (zero: no bound), the last limit of them (20 by default, clamped to 10,000), or the last before the
// cursor that came with the page before. next is "" at the beginning. Redacted and replaced turns are left out, pending
// ones are not. A session that is linked between two pages brings earlier turns in, which a reader that has gone past
// them does not see.
//
// Errors: ErrCursor, ErrUnavailable.
func (a *Audit) IdentityTurns(
	ctx context.Context, identity string, since, until time.Time, limit int, cursor string,
) (turns []Turn, next string, err error) {
	before := place{created: endOfTime}
	if cursor != "" {
		if before, err = parsePlace(cursor); err != nil {
			return nil, "", err
		}
	}
	if until.IsZero() {
		until = endOfTime
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	limit = min(limit, maxLimit)
	err = pgx.BeginTxFunc(ctx, a.pool, a.reading(), func(tx pgx.Tx) error {
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
		return nil, "", unavailable("list the turns of an identity", err)
	}
	if len(turns) > limit {
		turns = turns[1:]
		next = placeOf(turns[0]).String()
	}
	return turns, next, nil
}

// identityTurns go by the order of the log within a partition, also where its clock went back: at is the latest time
// until then.
const identityTurns = `select ` + turnColumns + `, at from (
		select turn_id as listed, at from (
			select turn_id, partition, place, record_version, created_at, created_ns, deleted_at, replaced_by_turn_id,
				max(created_at) over (partition by partition order by place, record_version) as at
			from {s}.questions where identity_id = @identity) q
		where deleted_at is null and replaced_by_turn_id is null
		and (at, partition, place, record_version) < (@at, @partition, @place, @version)
		and (created_at, created_ns) >= (@since, @since_ns) and (created_at, created_ns) < (@until, @until_ns)
		order by at desc, partition desc, place desc, record_version desc limit @limit) page
	join {s}.turns on turn_id = listed
	order by at, partition, place, record_version`

// endOfTime is after every time that PostgreSQL is asked for here.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// place orders the turns of an identity: by time, and in a partition as the log does.
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
	if err != nil || p.String() != cursor {
		return place{}, ErrCursor
	}
	return p, nil
}
