package house_test

import (
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floor of a package: imports point from a higher one to a lower one only.
func floor(path string) int {
	top, _, _ := strings.Cut(path, "/")
	return map[string]int{"events": 1, "projections": 2, "services": 3, "cmd": 4, "deploy": 4, "docs": 4}[top]
}

// siblings names the groups whose packages may import each other; packages of two groups may not. Each view is a group,
// and so is each service. The nouns in services
// itself belong to no group, nor do the scopes and callers in services/access, which transports ask for and
// authenticators return, nor services/items and services/align, which are pure, nor services/problems, which says of
// every error what clients are told, nor services/model/endpoint, by which all endpoints of others are called.
func siblings(all []*pkg) func(path string) string {
	group := func(path string) string { return strings.Join(strings.SplitN(path+"/", "/", 3)[:2], "/") }
	views := map[string]bool{}
	for _, p := range viewTypes(all) {
		views[group(p.path)] = true
	}
	return func(path string) string {
		switch own := group(path); {
		case path == "services", path == "services/access", path == "services/items", path == "services/align",
			path == "services/problems", path == "services/model/endpoint":
			return ""
		case strings.HasPrefix(own, "services/"), views[own]:
			return own
		}
		return ""
	}
}

// wire carries every API surface, so it knows no noun of ours: only who calls.
const wire = "services/httpapi/wire"

// Imports point down, siblings never import each other, and wire knows no noun. The linter depguard says more, by the
// lists in .golangci.yml.
//
//conformance:i77
func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	all := modulePackages(t)
	require.Empty(t, wrongImports(all))
	require.True(t, slices.ContainsFunc(all, func(p *pkg) bool { return p.path == wire }))
}

func wrongImports(all []*pkg) (findings []string) {
	sibling := siblings(all)
	for _, p := range all {
		for _, dep := range p.imports {
			dep, ours := strings.CutPrefix(dep, module)
			if !ours {
				continue
			}
			complain := func(why string) {
				findings = append(findings, fmt.Sprintf("%s imports %s: %s", p.path, dep, why))
			}
			a, b := sibling(p.path), sibling(dep)
			switch {
			case floor(p.path) < floor(dep):
				complain("imports point down")
			case a != "" && b != "" && a != b && floor(p.path) == floor(dep):
				complain("they are siblings")
			case p.path == wire && dep != "services/access":
				complain("wire knows no noun of ours")
			}
		}
	}
	return findings
}

// A name such as prompt_windows_test.go is that of another system's file: its tests would never run. A tag that the
// Makefile sets is none of that kind.
func TestTestsRunOnThisSystem(t *testing.T) {
	t.Parallel()
	for _, p := range modulePackages(t) {
		for _, f := range p.ignored {
			if !tagged(t, filepath.Join(root, p.path, f)) {
				require.NotContains(t, f, "_test.go", p.path)
			}
		}
	}
}

// tagged reports whether the Makefile runs a file's tests by the file's build tag.
func tagged(t *testing.T, file string) bool {
	t.Helper()
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	tag, ok := strings.CutPrefix(strings.SplitN(string(src), "\n", 2)[0], "//go:build ")
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	return ok && strings.Contains(string(makefile), " -tags "+tag+" ")
}

func TestWrongImportsAreFound(t *testing.T) {
	t.Parallel()
	src := func(name string, imports ...string) string {
		text := "package " + name + "\n"
		for _, i := range imports {
			text += "import _ \"" + module + i + "\"\n"
		}
		return text
	}
	found := wrongImports(planted(t,
		fault{"services", src("services")},
		fault{"services/access", src("access")},
		fault{"services/write", src("history", "services", "services/access")},
		fault{"events/log", src("log", "services")},
		fault{"projections/recent", src("recent", "services")},
		fault{"projections/recent/memory", src("memory", "projections/recent") + view},
		fault{"projections/audit", src("audit", "projections/recent") + view},
		fault{"projections/runner", src("runner", "projections/audit")},
		fault{"services/answer", src("answer", "projections/audit", "services/write")},
		fault{wire, src("wire", "services/access", "services", "events/log")},
		fault{"services/httpapi/v1", src("v1", wire, "services")},
		fault{"cmd/turnledger/cli", src("cli", "services/answer", "events/log")},
		fault{"services/backup", src("backup", "cmd/turnledger/cli")},
	))
	slices.Sort(found)
	require.Equal(t, []string{
		"events/log imports services: imports point down",
		"projections/audit imports projections/recent: they are siblings",
		"projections/recent imports services: imports point down",
		"services/answer imports services/write: they are siblings",
		"services/backup imports cmd/turnledger/cli: imports point down",
		wire + " imports events/log: wire knows no noun of ours",
		wire + " imports services: wire knows no noun of ours",
	}, found)
}

// viewTypes returns the types that are views, each with its package: they declare NewReference, which a view has of its
// own.
func viewTypes(all []*pkg) map[types.Type]*pkg {
	found := map[types.Type]*pkg{}
	for _, p := range all {
		for _, file := range p.files {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv == nil || f.Name.Name != "NewReference" || !p.inProgram() {
					continue
				}
				if typ := p.info.TypeOf(f.Recv.List[0].Type); isView(typ) {
					found[typ] = p
				}
			}
		}
	}
	return found
}

// isView reports whether a type is a view, an effect or a task, or a view's side for readers, by the methods that all
// of them have.
func isView(typ types.Type) bool {
	if _, pointer := typ.(*types.Pointer); !pointer && !types.IsInterface(typ) {
		typ = types.NewPointer(typ)
	}
	methods := types.NewMethodSet(typ)
	has := func(name string) bool { return methods.Lookup(nil, name) != nil }
	return has("Name") && (has("Claim") && has("Apply") || has("Resume") && has("Take")) || has("Load") && has("Wait")
}

// view is the source of a view, after its package clause and its imports.
const view = `
const Name = "audit"
type View struct{}
func (*View) Name() string { return Name }
func (*View) Claim(int) int { return 0 }
func (*View) Apply(int) error { return nil }
func (*View) NewReference() int { return 0 }
`
