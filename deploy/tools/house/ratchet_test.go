package house_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

const root = "../../.."

// tree returns the text files of the repository, read once for all rules.
var tree = sync.OnceValues(func() ([]source.File, error) { return source.Read(root) })

func repository(t *testing.T) []source.File {
	t.Helper()
	files, err := tree()
	require.NoError(t, err)
	return files
}

// ratchet compares the findings of a rule with the number that ratchets.txt allows. A finding begins with its
// place, "file:line". A rule without a number allows none.
func ratchet(t *testing.T, rule string, findings []string) {
	t.Helper()
	text, err := os.ReadFile("ratchets.txt")
	require.NoError(t, err)
	allowed, err := allowance(string(text), rule)
	require.NoError(t, err)
	complaint, advice := judge(rule, allowed, findings)
	if advice != "" {
		fmt.Println(advice) // a test that passes says nothing through t.Log
	}
	if complaint != "" {
		t.Error(complaint)
	}
}

func judge(rule string, allowed int, findings []string) (complaint, advice string) {
	n := len(findings)
	switch {
	case n > allowed:
		return fmt.Sprintf("%s: %d places, %d allowed:\n%s", rule, n, allowed, strings.Join(findings, "\n")), ""
	case n < allowed:
		return "", fmt.Sprintf("%s: %d places are left: lower %d to %d in deploy/tools/house/ratchets.txt", rule, n, allowed, n)
	}
	return "", ""
}

func allowance(text, rule string) (int, error) {
	for line := range strings.Lines(text) {
		if name, number, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == rule {
			return strconv.Atoi(strings.TrimSpace(number))
		}
	}
	return 0, nil
}

func TestARatchetMayOnlyFall(t *testing.T) {
	allowed, err := allowance("# comment\nother 7\nrule   2\n", "rule")
	require.NoError(t, err)
	require.Equal(t, 2, allowed)
	complaint, advice := judge("rule", allowed, []string{"a:1", "b:2", "c:3"})
	require.Contains(t, complaint, "3 places, 2 allowed:\na:1\nb:2\nc:3")
	require.Empty(t, advice)
	complaint, advice = judge("rule", allowed, []string{"a:1"})
	require.Empty(t, complaint)
	require.Contains(t, advice, "lower 2 to 1")
	complaint, advice = judge("rule", allowed, []string{"a:1", "b:2"})
	require.Empty(t, complaint+advice)
}
