package house_test

import (
	"fmt"
	"go/ast"
	"go/types"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostMethods is how many methods an interface has, those that it embeds included, unless its comment has a reason.
const mostMethods = 7

// reason is how the comment of a larger interface begins to say why.
var reason = regexp.MustCompile(`More than seven methods: \S`)

// An interface is what one consumer needs.
func TestInterfacesAreSmall(t *testing.T) {
	t.Parallel()
	require.Empty(t, largeInterfaces(modulePackages(t)))
}

func largeInterfaces(all []*pkg) (findings []string) {
	named := map[ast.Expr]bool{}
	declared(all, func(p *pkg, spec *ast.TypeSpec, typ types.Type, doc string) {
		named[spec.Type] = true
		i, ok := typ.Underlying().(*types.Interface)
		if ok && i.NumMethods() > mostMethods && !reason.MatchString(doc) {
			const large = "%s.%s has %d methods: split it by its consumers, or say why in its comment"
			findings = append(findings, fmt.Sprintf(large, p.path, spec.Name.Name, i.NumMethods()))
		}
	})
	for _, p := range all {
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.InterfaceType)
				if !ok || named[literal] {
					return true
				}
				if i := p.info.TypeOf(literal).(*types.Interface); i.NumMethods() > mostMethods {
					const large = "%s has %d methods and no name: split it by its consumers, or declare it"
					findings = append(findings, fmt.Sprintf(large, p.at(literal), i.NumMethods()))
				}
				return true
			})
		}
	}
	return findings
}

func TestLargeInterfacesAreFound(t *testing.T) {
	t.Parallel()
	found := largeInterfaces(planted(t, fault{"events", `package events
type Seven interface { A(); B(); C(); D(); E(); F(); G() }
`}, fault{"services/a", `package a
import "github.com/turnledger/turnledger/events"
// Ports of a.
type Ports struct { Log events.Seven; H func(); I func() }
// Eight embeds the rest.
type Eight interface { events.Seven; H() }
// Wide has an excuse. More than seven methods: it is the server's own.
type Wide interface { Eight; I() }
type Field struct { Log interface { Eight } }
func local() { type inner interface { Eight } }
`}))
	require.Equal(t, []string{
		"services/a.Eight has 8 methods: split it by its consumers, or say why in its comment",
		"services/a/a.go:9 has 8 methods and no name: split it by its consumers, or declare it",
		"services/a/a.go:10 has 8 methods and no name: split it by its consumers, or declare it",
	}, found)
}
