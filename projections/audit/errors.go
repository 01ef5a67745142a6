package audit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/projections"
)

var (
	// ErrUnavailable: PostgreSQL did not answer properly. Nothing is known about what it holds.
	ErrUnavailable = projections.Unavailable(errors.New("the audit tables do not answer"))
	// ErrCursor: the cursor was not returned by IdentityTurns.
	ErrCursor error = &decide.Invalid{Field: "cursor", Why: "is not one of this listing: start again without one"}
	// ErrMissing: PostgreSQL answers, but can't be used as it is. The text says what to do.
	ErrMissing = errors.New("PostgreSQL is not ready for the audit tables")
)

// failure wraps an error with the attempted action, and marks errors that a retry can't mend. PostgreSQL's messages
// about the values of a row quote these values; from these errors failure keeps only the code and the names of the
// table and the constraint. An error of this package stays as it is.
func failure(attempted string, err error) error {
	is := func(known error) bool { return errors.Is(err, known) }
	if err == nil || projections.IsPermanent(err) || slices.ContainsFunc(ours, is) {
		return err
	}
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case !answered:
		return fmt.Errorf("%s: %w: %w", attempted, ErrUnavailable, err)
	case slices.Contains(aboutData, pg.Code[:2]):
		refused := attempted + ": PostgreSQL refuses a row: SQLSTATE " + pg.Code
		for _, violated := range [][2]string{{"table", pg.TableName}, {"constraint", pg.ConstraintName}} {
			if violated[1] != "" {
				refused += ", " + violated[0] + " " + violated[1]
			}
		}
		return projections.Permanent(errors.New(refused))
	default:
		return fmt.Errorf("%s: %w: %s (SQLSTATE %s)", attempted, ErrUnavailable, pg.Message, pg.Code)
	}
}

var ours = []error{ErrUnavailable, ErrMissing, ErrDependent, projections.ErrFenced, projections.ErrNotCaughtUp,
	projections.ErrRebuilding}

// aboutData are the classes of errors that are caused by a row's values: data exception, integrity violation, program
// limit.
var aboutData = []string{"22", "23", "54"}

const (
	uniqueViolation  = "23505"
	lockNotAvailable = "55P03"
	undefinedColumn  = "42703"
	undefinedObject  = "42704"
	invalidSchema    = "3F000"
)

// codeOf returns the SQLSTATE of an error, or "" if PostgreSQL did not answer.
func codeOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// gone reports whether a table is missing, or of another format.
func gone(err error) bool {
	return slices.Contains([]string{"42P01", invalidSchema, undefinedColumn}, codeOf(err))
}

// unavailable is like failure, for reads: any error means that there is no answer.
func unavailable(attempted string, err error) error {
	if err = failure(attempted, err); err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
