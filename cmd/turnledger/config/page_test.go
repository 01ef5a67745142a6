package config_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/deploy/testkit/must"
)

var update = flag.Bool("update", false, "write docs/settings.md anew")

const settingsPage = "../../../docs/settings.md"

// settings returns the flags of all settings, in the order of their fields.
func settings(t *testing.T) []*kong.Flag {
	t.Helper()
	var c config.Config
	parser := must.Get(kong.New(&c, config.Options()...))(t)
	return parser.Model.Flags[1:] // without --help
}

// docs/settings.md says of each setting what its field says.
func TestSettingsPage(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile(settingsPage))(t)
	head, _, found := strings.Cut(string(page), "| variable |")
	require.True(t, found)
	var b strings.Builder
	b.WriteString(head + "| variable | default | what it is |\n| --- | --- | --- |\n")
	for _, f := range settings(t) {
		require.Len(t, f.Envs, 1, f.Name)
		name := "`" + f.Envs[0] + "`"
		flagged := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(f.Envs[0], "TURNLEDGER_")), "_", "-")
		require.Equal(t, flagged, f.Name, "the page says so of all")
		if f.Short != 0 {
			name += ", `-" + string(f.Short) + "`"
		}
		value := ""
		if f.Default != "" {
			value = "`" + f.Default + "`"
		}
		_, _ = fmt.Fprintf(&b, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(f.Help, "|",
			`\|`))
	}
	if *update {
		require.NoError(t, os.WriteFile(settingsPage, []byte(b.String()), 0o600))
	}
	require.Equal(t, b.String(), string(page), "write it anew: go test -run SettingsPage ./cmd/turnledger/config "+
		"-update")
}

// A setting that may hold a secret is not printed as it is.
func TestSettingsWithSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, f := range settings(t) {
		env, file := f.Envs[0], f.Tag.Type == "path"
		if strings.HasSuffix(env, "_KEY") && !file {
			require.Equal(t, "given", f.Tag.Get("show"), env)
		}
		if strings.HasSuffix(env, "_URL") {
			require.Equal(t, "url", f.Tag.Get("show"), env)
		}
	}
}

// A variable that no flag reads is named; that of a file with the value is known as its setting is.
func TestUnknownVariablesAreNamed(t *testing.T) {
	for _, name := range []string{"TURNLEDGER_MODEL_SILENCE", "TURNLEDGER_MODEL_KEY_FILE", "TURNLEDGER_TEST_DATA",
		"TURNLEDGER_SILENCE", "TURNLEDGER_NO_FILE"} {
		t.Setenv(name, "1m")
	}
	var c struct{ config.Config }
	parser := must.Get(kong.New(&c, config.Options()...))(t)
	unknown := config.Unknown(parser.Model)
	require.Subset(t, unknown, []string{"TURNLEDGER_SILENCE", "TURNLEDGER_NO_FILE"})
	for _, name := range unknown {
		require.NotContains(t, []string{"TURNLEDGER_MODEL_SILENCE", "TURNLEDGER_MODEL_KEY_FILE",
			"TURNLEDGER_TEST_DATA"}, name)
	}
}
