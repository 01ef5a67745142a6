package house_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Facts are a sealed interface that gochecksumtype knows, and neither it nor exhaustive takes a default for an answer.
func TestSwitchesHaveACaseForEachFactAndKind(t *testing.T) {
	t.Parallel()
	fact, err := os.ReadFile(filepath.Join(root, "events", "fact.go"))
	require.NoError(t, err)
	require.Contains(t, string(fact), "//sumtype:decl\ntype Fact interface {\n")
	require.Contains(t, string(fact), "\tcheck(body []byte) Problem\n", "a method that other packages can't have")
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	require.NoError(t, err)
	require.Empty(t, lenient(t, text))
}

// lenient returns the linters of switches that the settings leave out, or that take a default for an answer.
func lenient(t *testing.T, settings []byte) (findings []string) {
	t.Helper()
	type strictness struct {
		Default *bool `yaml:"default-signifies-exhaustive"`
	}
	var got struct {
		Linters struct {
			Enable   []string
			Settings struct{ Exhaustive, Gochecksumtype strictness }
		}
	}
	require.NoError(t, yaml.Unmarshal(settings, &got))
	for name, s := range map[string]strictness{
		"exhaustive": got.Linters.Settings.Exhaustive, "gochecksumtype": got.Linters.Settings.Gochecksumtype,
	} {
		if !strings.Contains(" "+strings.Join(got.Linters.Enable, " ")+" ", " "+name+" ") {
			findings = append(findings, name+" is not enabled")
		}
		if s.Default == nil || *s.Default {
			findings = append(findings, name+" takes a default for an answer")
		}
	}
	return findings
}

func TestLenientLintersAreFound(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, []string{
		"exhaustive takes a default for an answer", "gochecksumtype is not enabled",
		"gochecksumtype takes a default for an answer",
	}, lenient(t, []byte("linters:\n  enable: [exhaustive]\n  settings:\n    exhaustive:\n"+
		"      default-signifies-exhaustive: true\n")))
}
