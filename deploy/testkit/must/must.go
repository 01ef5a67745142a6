// Package must takes what a call returns where the call has to succeed.
package must

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Get returns a call's value, and fails the test if the call did: turn := must.Get(s.StartTurn(ctx, c))(t). The test
// comes last, since Go passes on what a call returns only where nothing stands beside it.
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
