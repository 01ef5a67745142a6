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

// An interface is what one consumer needs.
func TestInterfacesAreSmall(t *testing.T) {
	t.Parallel()
	declared(t, func(p *pkg, name string, typ types.Type, doc string) {
		i, ok := typ.Underlying().(*types.Interface)
		if ok && i.NumMethods() > mostMethods && !reason.MatchString(doc) {
			t.Errorf(
				"%s.%s has %d methods: split it by its consumers, or say why in its comment", p.path, name,
				i.NumMethods(),
			)
		}
	})
}
