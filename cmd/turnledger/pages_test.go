package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

var update = flag.Bool("update", false, "write the last column of docs/conformance.md anew")

const conformancePage = "../../docs/conformance.md"

// TestConformanceIsMadeFromTheTests: a test says in its comment which rows of docs/conformance.md it shows, as
// `//conformance:i12 h3`, and where a subtest shows them, `//conformance:i12 "its name"`. The last column of the page
// is made of these comments, so a test can move or change its name: `go test ./cmd/turnledger -run Conformance
// -update`.
// It fails if the page is not what the tests say, if a test names a row or a subtest that does not exist, and if no
// test shows a row.
func TestConformanceIsMadeFromTheTests(t *testing.T) {
	t.Parallel()
	shown := conformanceShown(t)
	page := must.Get(os.ReadFile(conformancePage))(t)
	var out strings.Builder
	rows := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		id := strings.TrimSpace(cells[min(1, len(cells)-1)])
		if len(cells) != 5 || strings.Contains(id, "---") || id == "id" {
			out.WriteString(line)
			continue
		}
		require.False(t, rows[id], "two rows are %s", id)
		rows[id] = true
		tests := shown[id]
		slices.Sort(tests)
		require.True(t, len(tests) > 0 || strings.Contains(cells[2], "does not apply"), "no test: %s", line)
		cells[3] = shownBy(slices.Compact(tests))
		out.WriteString(strings.Join(cells, "|"))
	}
	require.Greater(t, len(rows), 40)
	for id, tests := range shown {
		require.True(t, rows[id], "%s show a row that is not there: %s", tests, id)
	}
	if *update {
		require.NoError(t, os.WriteFile(conformancePage, []byte(out.String()), 0o600))
		return
	}
	require.Equal(t, out.String(), string(page), "run it with -update, or mend the comments of the tests")
}

// shownBy names the first test of a row, and how many more there are.
func shownBy(tests []string) string {
	more := ""
	if n := len(tests) - 1; n > 0 {
		tests, more = tests[:1], fmt.Sprintf(" +%d", n)
	}
	return strings.Replace(" "+strings.Join(tests, ", ")+more+" ", "  ", " ", 1)
}

var (
	conformanceLine    = regexp.MustCompile(`(?m)^//conformance:.*$`)
	conformanceComment = regexp.MustCompile(`^//conformance:([a-z]\d+(?: [a-z]\d+)*)(?: "([^"]+)")?$`)
)

// conformanceShown returns the tests and quoted subtests that show each row, as all test files of the repository say.
func conformanceShown(t *testing.T) map[string][]string {
	t.Helper()
	shown := map[string][]string{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		comments := len(conformanceLine.FindAll(text, -1))
		if comments == 0 {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			comments -= conformanceOf(t, decl, string(text), shown)
		}
		require.Zero(t, comments, "%s has comments that belong to no test", path)
		return nil
	}))
	return shown
}

// conformanceOf puts a test's name at each row that its comment names, and returns how many lines of it name rows.
func conformanceOf(t *testing.T, decl ast.Decl, file string, shown map[string][]string) int {
	t.Helper()
	f, isFunc := decl.(*ast.FuncDecl)
	if !isFunc || f.Doc == nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
		return 0
	}
	lines := 0
	for _, c := range f.Doc.List {
		m := conformanceComment.FindStringSubmatch(c.Text)
		if m == nil {
			continue
		}
		lines++
		name := f.Name.Name
		if m[2] != "" {
			require.Greater(t, strings.Count(file, `"`+m[2]+`"`), 1, "%s has no %q", name, m[2])
			name += ` "` + m[2] + `"`
		}
		for id := range strings.FieldsSeq(m[1]) {
			shown[id] = append(shown[id], name)
		}
	}
	return lines
}

// otherNames are options of other programs, each with the program.
var otherNames = map[string]string{
	"--dupe-window": "nats", "--noconfirm": "pacman", "--version": "postgres",
	"--auth-host": "initdb", "--auth-local": "initdb", "--data-checksums": "initdb", "--encoding": "initdb",
	"--locale": "initdb", "--no-sync": "initdb", "--username": "initdb",
}

var (
	variable = regexp.MustCompile(`\bTURNLEDGER_[A-Z0-9_]*[A-Z0-9]`)
	option   = regexp.MustCompile(`(?:^|[\s(])(--[a-z][a-z-]*[a-z])`)
)

// Texts of the program name settings: in complaints, in advice, in help. A setting that got another name is found in
// each of them.
func TestTextsNameSettingsThatThereAre(t *testing.T) {
	t.Parallel()
	var c commands
	parser := must.Get(kong.New(&c, config.Options()...))(t)
	known := settings(parser.Model)
	require.Greater(t, len(known), 100)
	used := map[string]string{}
	for _, dir := range []string{"events", "projections", "services", "cmd"} {
		require.NoError(t, filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test")) {
				return skipped(err)
			}
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				return namesIn(path, used)
			}
			return nil
		}))
	}
	require.Greater(t, len(used), 20)
	require.Empty(t, unknownOf(used, known))
	used["TURNLEDGER_FORMER"], used["--former"] = "planted.go", "planted.go"
	require.Equal(t, []string{"planted.go: --former", "planted.go: TURNLEDGER_FORMER"}, unknownOf(used, known))
}

// skipped returns an error of the walk, or leaves the folder out.
func skipped(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}

// settings returns the variables and flags of the command line. A variable of a secret may end in _FILE.
func settings(model *kong.Application) map[string]bool {
	known := map[string]bool{"--help": true}
	_ = kong.Visit(model, func(node kong.Visitable, next kong.Next) error {
		if f, ok := node.(*kong.Flag); ok {
			known["--"+f.Name] = true
			for _, env := range f.Envs {
				known[env], known[env+"_FILE"] = true, true
			}
		}
		return next(nil)
	})
	return known
}

// namesIn notes the settings that the texts of a file name.
func namesIn(path string, used map[string]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			return true
		}
		for _, name := range variable.FindAllString(text, -1) {
			used[name] = path
		}
		for _, found := range option.FindAllStringSubmatch(text, -1) {
			used[found[1]] = path
		}
		return true
	})
	return nil
}

// unknownOf returns the names that are no settings, each behind the file that uses it.
func unknownOf(used map[string]string, known map[string]bool) (out []string) {
	for name, path := range used {
		if !known[name] && otherNames[name] == "" {
			out = append(out, path+": "+name)
		}
	}
	slices.Sort(out)
	return out
}

var described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// describedMetrics returns the metrics of a process that has everything, with their labels.
func describedMetrics(t *testing.T) map[string]string {
	t.Helper()
	cfg := config.Config{
		Listen: "127.0.0.1:0", DataDir: stack.DataDir(t), Partitions: 1, Replicas: 1, Sync: "group",
		SessionTTL: 24 * time.Hour, SessionMax: 500, EraseRate: 40,
		PostgresURL: pg.Start(t).URL(), RedisURL: redistest.Start(t).URL(), RecentShadow: "memory",
	}
	cfg.MemoryURL, cfg.MemoryAPI = "http://127.0.0.1:1", "v5"
	cfg.SummaryURL, cfg.SummaryName = "http://127.0.0.1:1", "small"
	cfg.WeaviateURL, cfg.EmbedURL, cfg.EmbedName = "http://127.0.0.1:1", "http://127.0.0.1:1", "vectors"
	logger := slog.New(slog.NewTextHandler(&printed.Buffer{}, nil))
	s := must.Get(openStore(t.Context(), cfg, logger))(t)
	defer s.Close()
	a := must.Get(openApp(t.Context(), &app{cfg: cfg, roles: allRoles, logger: logger, store: s, front: &front{}}))(t)
	defer a.close(t.Context())
	out, all := map[string]string{}, make(chan *prometheus.Desc)
	go func() {
		a.registry.Describe(all)
		close(all)
	}()
	for d := range all {
		m := described.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		out[m[1]] = strings.ReplaceAll(m[2], ",", ", ")
	}
	return out
}

var metricRow = regexp.MustCompile("(?m)^\\| `((?:turnledger|gen_ai)_[a-z_]+)` \\| [^|]+ \\| ([^|]*) \\|")

// The table of docs/operations.md has every metric with its labels, and no other. (That rules and dashboards name only
// metrics of the table: deploy/e2e/deployment.)
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	have := describedMetrics(t)
	doc := must.Get(os.ReadFile("../../docs/operations.md"))(t)
	told := map[string]string{}
	for _, row := range metricRow.FindAllStringSubmatch(string(doc), -1) {
		told[row[1]] = strings.TrimSpace(row[2])
	}
	own := map[string]string{}
	for name, labels := range have {
		if strings.HasPrefix(name, "turnledger_") || strings.HasPrefix(name, "gen_ai_") {
			own[name] = labels
		}
	}
	require.Equal(t, own, told)
	require.Contains(t, have, "process_resident_memory_bytes", "a dashboard shows it")
}

// The help of serve names each role.
func TestTheHelpNamesEachRole(t *testing.T) {
	t.Parallel()
	var help strings.Builder
	require.Zero(t, run(t.Context(), []string{"serve", "--help"}, &help, io.Discard))
	words := strings.Join(strings.Fields(help.String()), " ")
	require.Contains(t, words, "commas between: "+strings.Join(allRoles, ", "))
}

// Operators find the answer of a closed front on the page that lists why a write is 503.
func TestTheAnswerOfAClosedFrontIsExplained(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	closed.ServeHTTP(w, httptest.NewRequest("POST", "/v1/sessions/s/turns", strings.NewReader("{}")))
	require.Equal(t, 503, w.Code)
	var told struct{ Code, Detail string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &told))
	page := must.Get(os.ReadFile("../../docs/operations.md"))(t)
	begins, _, _ := strings.Cut(told.Detail, ":")
	require.Contains(t, string(page), "| `"+told.Code+"` | a backup is being restored; "+begins+" |")
}

// The console is where the role context is, unless it was taken away.
func TestRolesThatHaveTheConsole(t *testing.T) {
	t.Parallel()
	for list, has := range map[string]bool{"context": true, "api,context,chat": true, "api": false,
		"recent,audit,index,eraser": false} {
		for set, on := range map[string]bool{"on": true, "off": false} {
			var a app
			a.cfg.Console = set
			a.roles = must.Get(parseRoles(list))(t)
			require.Equal(t, has && on, a.hasConsole(), "%s, %s", list, set)
		}
	}
}
