package house_test

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command joins and prints. What is done for each partition is done by the package that knows partitions.
func TestTheCommandLoopsOverNoPartitions(t *testing.T) {
	t.Parallel()
	require.Empty(t, partitionLoops(modulePackages(t)))
}

var ofPartitions = regexp.MustCompile(`(?i)partitions?$`)

// partitionLoops returns the loops of cmd whose head names partitions, or a variable that was set from them.
func partitionLoops(all []*pkg) (findings []string) {
	for _, p := range all {
		if !strings.HasPrefix(p.path, "cmd/") || !p.inProgram() {
			continue
		}
		for _, file := range p.files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					findings = append(findings, loopsOf(p, f)...)
				}
			}
		}
	}
	return findings
}

func loopsOf(p *pkg, f *ast.FuncDecl) (findings []string) {
	set := map[string]bool{}
	names := func(head ast.Node) (yes bool) {
		ast.Inspect(head, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			yes = yes || ok && (ofPartitions.MatchString(id.Name) || set[id.Name])
			return !yes
		})
		return yes
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && names(n.Rhs[min(i, len(n.Rhs)-1)]) {
					set[id.Name] = true
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if len(n.Values) > 0 && names(n.Values[min(i, len(n.Values)-1)]) {
					set[id.Name] = true
				}
			}
		case *ast.RangeStmt:
			if names(n.X) {
				findings = append(findings, p.at(n))
			}
		case *ast.ForStmt:
			if n.Cond != nil && names(n.Cond) {
				findings = append(findings, p.at(n))
			}
		}
		return true
	})
	return findings
}

func TestLoopsOverPartitionsAreFound(t *testing.T) {
	t.Parallel()
	const log = "type log struct{}\nfunc (log) Partitions() int { return 2 }\n"
	command := fault{"cmd/turnledger", "package main\n" + log + `func loops(l log, partitions []int) {
	for range l.Partitions() { }
	for k := 0; k < len(partitions); k++ { }
	n := l.Partitions()
	for range n { }
	for range 3 { }
	a, b := 1, l.Partitions()
	for range a { }
	for range b { }
	var c = l.Partitions()
	for range c { }
}
`}
	below := fault{"services/a", "package a\n" + log + "func loops(l log) { for range l.Partitions() {} }\n"}
	require.Equal(t, []string{"cmd/turnledger/a.go:5", "cmd/turnledger/a.go:6", "cmd/turnledger/a.go:8",
		"cmd/turnledger/a.go:12", "cmd/turnledger/a.go:14"},
		partitionLoops(planted(t, command, below)))
}
