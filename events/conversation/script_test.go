package conversation_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

var update = flag.Bool("update", false, "rewrite the expectations of testdata/*.txt")

// TestScripts runs testdata/*.txt: each step is lines of input, a line "----", and
// the exact output up to an empty line. Lines that begin with # are comment.
//
//conformance:o30 o45
func TestScripts(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob("testdata/*.txt"))(t)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			raw := must.Get(os.ReadFile(name))(t)
			script := parseScript(string(raw))
			run := &runner{}
			for i, step := range script {
				got := run.step(step.input)
				if !*update {
					require.Equal(t, step.want, got, "%s:%d, after\n%s", name, step.line, strings.Join(step.input,
						"\n"))
				}
				script[i].want = got
			}
			if *update {
				require.NoError(t, os.WriteFile(name, []byte(script.String()), 0o600))
			}
		})
	}
}

type step struct {
	line        int
	head, input []string // head is comment
	want        string
}

type script []step

func parseScript(raw string) script {
	var out script
	var cur step
	output := false
	for i, line := range strings.Split(raw, "\n") {
		switch {
		case output && line == "":
			out, cur, output = append(out, cur), step{}, false
		case output:
			cur.want += line + "\n"
		case line == "----":
			cur.line, output = i+1, true
		case line == "" && len(cur.input) == 0, strings.HasPrefix(line, "#"):
			cur.head = append(cur.head, line)
		case line != "":
			cur.input = append(cur.input, line)
		}
	}
	if output || len(cur.head)+len(cur.input) > 0 {
		out = append(out, cur)
	}
	return out
}

func (s script) String() string {
	var b strings.Builder
	for _, step := range s {
		for _, line := range append(step.head, step.input...) {
			b.WriteString(line + "\n")
		}
		if len(step.input) > 0 {
			b.WriteString("----\n" + step.want + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// args are the words of an input line: "word word key=value"; a value may be
// quoted as in Go.
type args struct {
	words  []string
	values map[string]string
}

func parseLine(line string) (args, error) {
	a := args{values: map[string]string{}}
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " ") {
		end := strings.IndexAny(rest, " =")
		if end < 0 {
			end = len(rest)
		}
		word := rest[:end]
		if rest = rest[end:]; !strings.HasPrefix(rest, "=") {
			a.words = append(a.words, word)
			continue
		}
		value, after, err := cutValue(rest[1:])
		if err != nil {
			return a, fmt.Errorf("value of %s in %q: %w", word, line, err)
		}
		a.values[word], rest = value, after
	}
	return a, nil
}

func cutValue(s string) (value, rest string, err error) {
	if quoted, err := strconv.QuotedPrefix(s); err == nil {
		value, err = strconv.Unquote(quoted)
		return value, s[len(quoted):], err
	}
	if strings.HasPrefix(s, `"`) || strings.HasPrefix(s, "`") {
		return "", "", strconv.ErrSyntax
	}
	value, rest, _ = strings.Cut(s, " ")
	return value, rest, nil
}

func (a args) has(flag string) bool {
	for _, w := range a.words[1:] {
		if w == flag {
			return true
		}
	}
	return false
}

func (a args) word(i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	return ""
}
