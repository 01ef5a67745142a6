package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// safe is an error whose whole text is the program's.
type safe struct{}

func (safe) Error() string    { return "my secret" }
func (safe) SafeText() string { return "401" }

// TestWordsOfAnErrorHoldNoText: a log gets the parts of an error that the program, the network or PostgreSQL wrote,
// each once, and never what a client sent.
func TestWordsOfAnErrorHoldNoText(t *testing.T) {
	t.Parallel()
	away, secret := errors.New("the log is away"), errors.New("sent: my secret")
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"known":           {fmt.Errorf("read %q: %w", "my secret", away), "the log is away"},
		"known and texts": {fmt.Errorf("%w: %w", away, secret), "the log is away"},
		"known twice":     {fmt.Errorf("%w: %w", away, fmt.Errorf("again: %w", away)), "the log is away"},
		"a deadline":      {fmt.Errorf("%w: %w", secret, context.DeadlineExceeded), "context deadline exceeded"},
		"the network":     {errors.Join(away, secret, dial), "the log is away: dial tcp: connection refused"},
		"PostgreSQL":      {fmt.Errorf("x: %w", &pgconn.PgError{Code: "23505", Detail: "my secret"}), "SQLSTATE 23505"},
		"a model":         {fmt.Errorf("%w: %w", away, safe{}), "the log is away: 401"},
		"nothing known":   {fmt.Errorf("read: %w", secret), "*errors.errorString"},
	} {
		require.Equal(t, row.want, wire.SafeText(row.err, away), name)
	}
}
