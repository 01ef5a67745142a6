package house_test

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sameFields is from how many fields of one name and type on two structs are the same noun, declared twice.
const sameFields = 4

// apart are packages and types that may look like another noun, each with the reason.
var apart = map[string]string{
	"events": "stored: the form of the facts in the log, which no command and no state decides",
	"services/client": "a client's own types: programs outside import them, and the JSON of the API is " +
		"their form",
	"services/export.TurnRow":     "wire form: the columns of a table of turns",
	"services/export.EventRow":    "wire form: the columns of a table of events",
	"services/backup.ErasureData": "wire form: the data of an erasure's CloudEvent in a backup",
	"services/backup.File":        "stored: a line of a backup's manifest",
	"projections/rebuild.Config":  "settings: each component has its own",
	"projections/fleet.Config":    "settings: each component has its own",
}

// A noun has one type: what two packages speak of is declared in services, projections or events.
func TestNounsAreDeclaredOnce(t *testing.T) {
	t.Parallel()
	type noun struct {
		pkg, name string
		fields    map[string]string
	}
	var nouns []noun
	declared(t, func(p *pkg, name string, typ types.Type, _ string) {
		s, ok := typ.Underlying().(*types.Struct)
		_, alias := typ.(*types.Alias) // it declares nothing
		if !ok || alias || !ast.IsExported(name) || apart[p.path] != "" || apart[p.path+"."+name] != "" {
			return
		}
		n := noun{p.path, name, map[string]string{}}
		for f := range s.Fields() {
			n.fields[f.Name()] = types.TypeString(f.Type(), nil)
		}
		nouns = append(nouns, n)
	})
	require.Greater(t, len(nouns), 50)
	for name, why := range apart {
		require.NotEmpty(t, why, name)
	}
	for i, a := range nouns {
		for _, b := range nouns[:i] {
			if a.pkg == b.pkg {
				continue
			}
			var same []string
			for name, typ := range a.fields {
				if b.fields[name] == typ {
					same = append(same, name)
				}
			}
			slices.Sort(same)
			if len(same) >= sameFields {
				t.Errorf("%s.%s and %s.%s both have %s", a.pkg, a.name, b.pkg, b.name, strings.Join(same, ", "))
			}
		}
	}
}
