// Package must holds calls in tests to how they have to end.
package must

import (
	"context"
	"os/exec"
	"strings"

	"github.com/stretchr/testify/require"
)

// TB is a test, a benchmark or a check of a property.
type TB interface {
	require.TestingT
	Helper()
}

// Get returns a call's value, and ends the test if the call failed: turn := must.Get(s.StartTurn(ctx, c))(t). The test
// comes last, since Go passes on what a call returns only where nothing stands beside it. A message may follow, as with
// require.
func Get[T any](value T, err error) func(t TB, message ...any) T {
	return func(t TB, message ...any) T {
		t.Helper()
		require.NoError(t, err, message...)
		return value
	}
}

// Fail ends the test unless a call failed as it had to: must.Fail(s.StartTurn(ctx, c))(t, decide.ErrInvalid). A
// message may follow, as with require.
func Fail[T any](_ T, err error) func(t TB, want error, message ...any) {
	return func(t TB, want error, message ...any) {
		t.Helper()
		require.ErrorIs(t, err, want, message...)
	}
}

// Two is Get for a call that returns two values.
func Two[A, B any](a A, b B, err error) func(t TB) (A, B) {
	return func(t TB) (A, B) {
		t.Helper()
		require.NoError(t, err)
		return a, b
	}
}

// Three is Get for a call that returns three values.
func Three[A, B, C any](a A, b B, c C, err error) func(t TB) (A, B, C) {
	return func(t TB) (A, B, C) {
		t.Helper()
		require.NoError(t, err)
		return a, b, c
	}
}

// Err returns the error of a call that returns values, too: require.ErrorContains(t, must.Err(f()), "why").
func Err(returned ...any) error {
	err, _ := returned[len(returned)-1].(error)
	return err
}

// Contain ends the test unless a text has each of the parts.
func Contain(t TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		require.Contains(t, text, part)
	}
}

// Lack ends the test if a text has one of the parts.
func Lack(t TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		require.NotContains(t, text, part)
	}
}

// Program writes a file that can be run at once. A child writes it: what this process has open for writing is open in
// every child that another test forks just then too, and the kernel runs no such file ("text file busy").
func Program(t TB, file, text string) {
	t.Helper()
	write := exec.CommandContext(context.Background(), "install", "-m", "755", "/dev/stdin", file)
	write.Stdin = strings.NewReader(text)
	out, err := write.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
