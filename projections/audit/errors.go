package audit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

var (
	// ErrUnavailable: PostgreSQL did not answer, or not as it should. Nothing may be concluded about what it holds.
	ErrUnavailable = projections.Unavailable(errors.New("the audit tables do not answer"))
	// ErrCursor: the cursor is not one that IdentityTurns gave.
	ErrCursor error = &conversation.Invalid{Field: "cursor", Why: "is not one of this listing: start again without one"}
	// ErrMissing: PostgreSQL answers, but can't be used as it is. The text says what to do.
	ErrMissing = errors.New("PostgreSQL is not ready for the audit tables")
)

// sqlError is a statement that PostgreSQL refused for what it was to store. Its messages quote values, so that only the
// code and the names of what was violated are told.
type sqlError struct{ code, table, constraint string }

func (e *sqlError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "PostgreSQL refuses a row: SQLSTATE %s", e.code)
	for _, part := range [][2]string{{"table", e.table}, {"constraint", e.constraint}} {
		if part[1] != "" {
			fmt.Fprintf(&b, ", %s %s", part[0], part[1])
		}
	}
	return b.String()
}

// failure gives an error without values, as what was attempted, and marks what trying again can't mend.
func failure(attempted string, err error) error {
	if err == nil || errors.Is(err, projections.ErrFenced) || errors.Is(err, ErrMissing) {
		return err
	}
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		return fmt.Errorf("%s: %w: %w", attempted, ErrUnavailable, err)
	case aboutData(pg.Code):
		return projections.Permanent(fmt.Errorf("%s: %w", attempted, &sqlError{pg.Code, pg.TableName, pg.ConstraintName}))
	default:
		return fmt.Errorf("%s: %w: %s (SQLSTATE %s)", attempted, ErrUnavailable, pg.Message, pg.Code)
	}
}

// aboutData knows the classes of errors that come from the values of a row: data exception, integrity violation, limit of
// the program.
func aboutData(code string) bool {
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "54")
}

// collides tells whether a row stands already.
func collides(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}

// gone reports whether there is no such table any more, or one of a version before: its rebuild was swapped in.
func gone(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000" || pg.Code == "42703")
}

// unavailable is failure for reads: whatever is wrong, there is no answer.
func unavailable(attempted string, err error) error {
	if err = failure(attempted, err); err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
