package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkout writes a made-up module, given as paths and texts.
func checkout(t *testing.T, pathsAndTexts ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := 0; i < len(pathsAndTexts); i += 2 {
		name := filepath.Join(dir, pathsAndTexts[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(pathsAndTexts[i+1]), 0o600))
	}
	return dir
}

func TestEachKindIsDrawn(t *testing.T) {
	t.Parallel()
	all, got := candidates{}, map[string][]string{}
	require.NoError(t, all.parse("a/a.go", []byte(`package a

func (s *T[K]) All(n int) (int, error) {
	if err := s.open(); err != nil {
		return 0, err
	}
	for i := 0; i < n && s.more(i+1); i++ {
		if !s.has(i) {
			continue
		}
		go func() error {
			s.drop(i)
			s.Lock()
			return s.failed
		}()
	}
	<-s.done
	s.log.Warn("all")
	s.last = min(n, s.last)
	return n, s.group.Wait()
}
`)))
	for kind, functions := range all {
		require.Len(t, functions, 1)
		for _, m := range functions[0] {
			require.Equal(t, "(*T).All", m.Func)
			got[kind] = append(got[kind], strings.Join(m.Before, "|")+" => "+strings.Join(m.After, "|"))
		}
	}
	const loop = "for i := 0; i < n && s.more(i+1); i++ => for i := 0; i "
	require.Equal(t, map[string][]string{
		noError: {
			"if err := s.open(); err != nil => if err := s.open(); false && err != nil",
			"return 0, err => return 0, nil",
			"return s.failed => return nil", "return n, s.group.Wait() => return n, nil",
		},
		offByOne: {loop + "<= n && s.more(i+1); i++"},
		andOr:    {loop + "< n || s.more(i+1); i++"},
		amount: {
			"return 0, err => return 1, err",
			"for i := 0; i < n && s.more(i+1); i++ => for i := 1; i < n && s.more(i+1); i++",
			loop + "< n && s.more(i-1); i++", loop + "< n && s.more(i+2); i++",
			"s.last = min(n, s.last) => s.last = max(n, s.last)",
		},
		turned:    {"if !s.has(i) => if s.has(i)"},
		jump:      {"continue => break"},
		noCall:    {"s.drop(i) => "},
		noWait:    {"<-s.done => ", "return n, s.group.Wait() => return n, error(nil)"},
		noSetting: {"s.last = min(n, s.last) => "},
	}, got)
}

const moved = `package b

func f() int { return 1 }

func (T) g(n int) int {
	if n > 1 {
		return n + 1
	}
	n++
	return n +
		1
}
`

// A list is good for later trees: a statement is found behind other lines, in another file and in another folder.
func TestStatementsAreFoundWhereTheyMoved(t *testing.T) {
	t.Parallel()
	dir := checkout(t, "b/other.go", moved, "b/a_test.go", moved)
	all, err := parse("# a comment\n\n7 an amount that is wrong\nfile a/a.go\nfunc (T).g\n- return n +\n- 1\n" +
		"+ return n -\n+ 1\n\n# another\n8 an assignment dropped\nfile b/a.go\nfunc (T).g\n- n++\n\n" +
		"9 a number\nfile b/other.go\nfunc (T).g\nnth 2\n- n++\n")
	require.NoError(t, err)
	require.Len(t, all, 3)
	at, err := all[0].find(dir)
	require.NoError(t, err)
	require.Equal(t, found{"b/other.go", strings.Replace(moved, "n +\n\t\t1", "n -\n1 ", 1)}, at)
	at, err = all[1].find(dir)
	require.NoError(t, err)
	require.Equal(t, strings.Replace(moved, "n++", " ", 1), at.text)
	_, err = all[2].find(dir)
	require.ErrorIs(t, err, errNowhere, "there is one")
	for _, m := range all {
		again, err := parse(m.String())
		require.NoError(t, err)
		require.Equal(t, []mutation{m}, again)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.go"), []byte(moved), 0o600))
	_, err = all[0].find(dir)
	require.ErrorIs(t, err, errTwice)
}

// A mutation is killed by a test of its own package or by one of an importer, the closest first; not by a test that
// fails without it. The checkout stays as it is.
func TestMutationsAreKilledByTheClosestTest(t *testing.T) {
	t.Parallel()
	const test = "package %\n\nimport \"testing\"\n\n" +
		"func TestF(t *testing.T) {\n\tif F(3) != 4 {\n\t\tt.Fail()\n\t}\n}\n"
	a := "package a\n\nfunc F(n int) int {\n\tif n < 0 {\n\t\treturn 0\n\t}\n\treturn n + 1\n}\n"
	above := func(name, below string) string {
		return "package " + name + "\n\nimport \"m/" + below + "\"\n\nfunc F(n int) int { return " + below + ".F(n) }\n"
	}
	dir := checkout(t, "go.mod", "module m\n\ngo 1.26\n", "a/a.go", a, "a/a_test.go",
		"package a\n\nimport \"testing\"\n\nfunc TestFlaky(t *testing.T) { t.Fail() }\n",
		"b/b.go", above("b", "a"), "c/c.go", above("c", "b"), "c/c_test.go", strings.ReplaceAll(test, "%", "c"))
	all, err := parse("1 an amount that is wrong\nfile a/a.go\nfunc F\n- return n + 1\n+ return n - 1\n\n" +
		"2 a comparison off by one\nfile a/a.go\nfunc F\n- if n < 0\n+ if n <= 0\n\n" +
		"3 a call dropped\nfile a/a.go\nfunc F\n- g()\n")
	require.NoError(t, err)
	var out bytes.Buffer
	r := runner{dir: dir, limit: time.Minute, out: &out}
	require.NoError(t, r.run(t.Context(), all, nil))
	said := strings.Split(out.String(), "\n")
	require.Contains(t, said[0], " 1 an amount that is wrong, a/a.go F: killed by m/c TestF (")
	require.Contains(t, said[1], "F: survived 2 packages; these fail without it, too: m/a TestFlaky (")
	require.Contains(t, said[2], "F: not run: "+errNowhere.Error())
	require.Equal(t, "1 of 3 killed; survived: [2]; not run: [3]", said[3])

	out.Reset()
	require.NoError(t, find(dir, all, nil, &out))
	require.Contains(t, out.String(), " 1 an amount that is wrong, a/a.go F: there\n")
	require.Contains(t, out.String(), "F: not there: "+errNowhere.Error()+"\n1 not there: [3]\n")

	out.Reset()
	all[2].Before, all[2].After = []string{"return 0"}, []string{"return nothing"}
	r.command = []string{"go", "test", "./c"}
	require.NoError(t, r.run(t.Context(), all, nil))
	require.Contains(t, out.String(), "killed by go test ./c (")
	require.Contains(t, out.String(), "survived go test ./c (")
	require.Contains(t, out.String(), "not run: a/a.go does not compile: ")
	text, err := os.ReadFile(filepath.Join(dir, "a", "a.go"))
	require.NoError(t, err)
	require.Equal(t, a, string(text))
}

func TestTheSameSeedDrawsTheSame(t *testing.T) {
	t.Parallel()
	dir := checkout(t, "go.mod", "module m\n\ngo 1.26\n", "events/a.go",
		"package a\n\nimport \"os\"\n\nfunc F(n int) int {\n\treturn n + 1\n}\n\nfunc G() {\n\tos.Exit(3)\n}\n",
		"events/a_test.go", "package a\n\nfunc H() bool { return true }\n",
		"events/atest/a.go", "package atest\n\nfunc H() bool { return true }\n")
	lists := map[string]bool{}
	for range 2 {
		var out bytes.Buffer
		require.NoError(t, draw(t.Context(), dir, 36, 2, nil, &out))
		lists[out.String()] = true
	}
	require.Len(t, lists, 1)
	for list := range lists {
		all, err := parse(list)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.NotEqual(t, all[0].Func, all[1].Func)
		require.NotContains(t, list, "true", "tests are no product")
		require.NotContains(t, list, "- os.Exit(3)\n\n", "its import would be left")
	}
}
