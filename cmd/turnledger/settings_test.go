package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
)

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
	parser, err := kong.New(&c, config.Options()...)
	require.NoError(t, err)
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
