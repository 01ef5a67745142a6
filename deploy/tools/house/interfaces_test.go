package house_test

import (
	"go/types"
	"regexp"
	"testing"
)

// mostMethods is how many methods an interface has, those that it embeds included, unless its comment has a reason.
const mostMethods = 7

// reason is how the comment of a larger interface begins to say why.
var reason = regexp.MustCompile(`More than seven methods: \S`)

// large are interfaces that are still to be split, with how many methods they may have until then: a number may only
// fall.
var large = map[string]int{
	"projections.Generation":        8,
	"projections/recent.Restorable": 8,
	"cmd/turnledger.kept":           8,
}

// An interface is what one consumer needs.
func TestInterfacesAreSmall(t *testing.T) {
	t.Parallel()
	declared(t, func(p *pkg, name string, typ types.Type, doc string) {
		i, ok := typ.Underlying().(*types.Interface)
		if ok && i.NumMethods() > max(mostMethods, large[p.path+"."+name]) && !reason.MatchString(doc) {
			t.Errorf(
				"%s.%s has %d methods: split it by its consumers, or say why in its comment", p.path, name,
				i.NumMethods(),
			)
		}
	})
}
