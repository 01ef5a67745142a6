package house_test

import (
	"fmt"
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
	declared(all, func(p *pkg, name string, typ types.Type, doc string) {
		i, ok := typ.Underlying().(*types.Interface)
		if ok && i.NumMethods() > mostMethods && !reason.MatchString(doc) {
			findings = append(findings, fmt.Sprintf(
				"%s.%s has %d methods: split it by its consumers, or say why in its comment", p.path, name,
				i.NumMethods(),
			))
		}
	})
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
`}))
	require.Equal(t, []string{
		"services/a.Eight has 8 methods: split it by its consumers, or say why in its comment",
	}, found)
}
