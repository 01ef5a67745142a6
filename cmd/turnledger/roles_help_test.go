package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The help of serve names each role.
func TestTheHelpNamesEachRole(t *testing.T) {
	t.Parallel()
	var help strings.Builder
	require.Zero(t, run(t.Context(), []string{"serve", "--help"}, &help, io.Discard))
	words := strings.Join(strings.Fields(help.String()), " ")
	require.Contains(t, words, "commas between: "+strings.Join(allRoles, ", "))
}
