package house_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

// A doc comment says "returns" and "reports whether", as Go's own do, where this tree once said "gives" and
// "tells".
func TestDocCommentsReturnAndReport(t *testing.T) {
	var findings []string
	for _, f := range repository(t) {
		findings = append(findings, givesAndTells(f)...)
	}
	ratchet(t, "doc-comments-give-or-tell", findings)
}

var gives = regexp.MustCompile(`^(?:(?:A|An|The) )?\S+ (gives|tells)\b`)

func givesAndTells(f source.File) (findings []string) {
	if f.Syntax == nil {
		return nil
	}
	look := func(doc *ast.CommentGroup) {
		if doc != nil && gives.MatchString(doc.Text()) {
			said := gives.FindString(doc.Text())
			findings = append(findings, fmt.Sprintf("%s:%d %q", f.Path, f.Line(doc.Pos()), said))
		}
	}
	look(f.Syntax.Doc)
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			look(n.Doc)
		case *ast.GenDecl:
			look(n.Doc)
		case *ast.TypeSpec:
			look(n.Doc)
		case *ast.ValueSpec:
			look(n.Doc)
		case *ast.Field:
			look(n.Doc)
		}
		return true
	})
	return findings
}

func TestDocCommentsThatGiveOrTellAreFound(t *testing.T) {
	f, err := source.Parse(nil, "a.go", []byte(`package a
// Foo gives a number.
func Foo() int
// foo tells whether it is so.
func foo() bool
// Bar returns what Foo gives.
func Bar() int
type t struct {
	// A field tells more.
	A int
}
`))
	require.NoError(t, err)
	require.Equal(t, []string{`a.go:2 "Foo gives"`, `a.go:4 "foo tells"`, `a.go:9 "A field tells"`}, givesAndTells(f))
}
