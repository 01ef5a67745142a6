package audit

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Bounds of a page.
const (
	defaultLimit = 20
	maxLimit     = 10_000
)

// IdentityTurns lists the turns of an identity over all its sessions, newest last: those created at or after since and
// before until (zero: no bound), the last limit of them (20 by default, clamped to 10,000), or the last before the cursor that
// the page before gave. next is "" at the beginning. Redacted and replaced turns are left out, pending ones are not. A session
// that is linked between two pages brings earlier turns in, which a reader that has gone past them does not see.
//
// Errors: ErrCursor, ErrUnavailable.
func (a *Audit) IdentityTurns(ctx context.Context, identity string, since, until time.Time, limit int, cursor string) (turns []Turn, next string, err error) {
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
	err = pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{BeginQuery: a.sql.read}, func(tx pgx.Tx) error {
		turns, err = collectListed(tx.Query(ctx, a.sql.identityTurns, identity, before.created, before.partition, before.seq, before.version,
			micros(since), nanos(since), micros(until), nanos(until), limit+1))
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

// String is the cursor before a turn; its form is nobody's business.
func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d.%d.%d", p.created.UnixMicro(), p.partition, p.seq, p.version))
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
