package house_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

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
	complaint, advice := judge(rule, allowed, findings, touched())
	if advice != "" {
		fmt.Println(advice) // a test that passes says nothing through t.Log
	}
	if complaint != "" {
		t.Error(complaint)
	}
}

// judge complains of too many findings, and asks for the lower number where there are fewer. Of more findings
// than one can read it names those in the files that were touched.
func judge(rule string, allowed int, findings []string, touched map[string]bool) (complaint, advice string) {
	n := len(findings)
	switch {
	case n > allowed:
		where := "places"
		if n > 100 {
			where = "places in files that were touched last"
			findings = slices.DeleteFunc(findings, func(finding string) bool {
				file, _, _ := strings.Cut(finding, ":")
				return !touched[file]
			})
		}
		return fmt.Sprintf("%s: %d, %d allowed; %s:\n%s", rule, n, allowed, where, strings.Join(findings, "\n")), ""
	case n < allowed:
		const advise = "%s: %d places are left: lower %d to %d in deploy/tools/house/ratchets.txt"
		return "", fmt.Sprintf(advise, rule, n, allowed, n)
	}
	return "", ""
}

// touched returns the files that the working tree or its last commit changes; none where git does not answer.
func touched() map[string]bool {
	files := map[string]bool{}
	for _, args := range [][]string{
		{"diff", "--name-only", "HEAD~1"}, {"ls-files", "--others", "--exclude-standard", "--full-name", "../../.."},
	} {
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			continue
		}
		for file := range strings.FieldsSeq(string(out)) {
			files[file] = true
		}
	}
	return files
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
	complaint, advice := judge("rule", allowed, []string{"a:1", "b:2", "c:3"}, nil)
	require.Contains(t, complaint, "rule: 3, 2 allowed; places:\na:1\nb:2\nc:3")
	require.Empty(t, advice)
	complaint, advice = judge("rule", allowed, []string{"a:1"}, nil)
	require.Empty(t, complaint)
	require.Contains(t, advice, "lower 2 to 1")
	complaint, advice = judge("rule", allowed, []string{"a:1", "b:2"}, nil)
	require.Empty(t, complaint+advice)
	many := append(slices.Repeat([]string{"a:1"}, 100), "b:7")
	complaint, _ = judge("rule", 100, many, map[string]bool{"b": true})
	require.Contains(t, complaint, "rule: 101, 100 allowed; places in files that were touched last:\nb:7")
	require.NotContains(t, complaint, "a:1")
}
