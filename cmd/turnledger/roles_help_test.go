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

// The console is where the role context is, unless it was taken away.
func TestRolesThatHaveTheConsole(t *testing.T) {
	t.Parallel()
	for list, has := range map[string]bool{"context": true, "api,context,chat": true, "api": false,
		"recent,audit,index,eraser": false} {
		for set, on := range map[string]bool{"on": true, "off": false} {
			var a app
			a.cfg.Console = set
			var err error
			a.roles, err = parseRoles(list)
			require.NoError(t, err)
			require.Equal(t, has && on, a.hasConsole(), "%s, %s", list, set)
		}
	}
}
