package house_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A chat message and a part of a content are read in events/message and nowhere else: no other package decodes JSON
// into a type with a member of theirs, or takes such a member out of decoded JSON. What models stream is no message
// yet, so their clients read it; other packages may write messages, and ask events/message what one says.
func TestMessagesAreReadInOnePlace(t *testing.T) {
	t.Parallel()
	all := modulePackages(t)
	require.Empty(t, messageReaders(all))
	require.True(t, slices.ContainsFunc(all, func(p *pkg) bool { return p.path == messageRoom }))
}

const messageRoom = "events/message"

// ofMessages are the members that only messages of chats, items and their parts have, in the vendors' forms. A type
// with role and content is a message, too.
var ofMessages = []string{
	"tool_calls", "tool_call_id", "function_call", "image_url", "input_audio", "item_ids", "tool_use_id",
	"toolCallId", "refusal",
}

// mayRead are packages that read what looks like a message, each with the reason.
var mayRead = map[string]string{
	messageRoom:                "it reads messages",
	"services/model/openai":    "pieces of an answer, as compatible servers stream them",
	"services/client/importer": "threads of the Assistants API, whose parts no other door takes",

	"services/httpapi/v1/uimessage": "the parts of UI messages, each a call with its output, which no other door takes",
}

func messageReaders(all []*pkg) (findings []string) {
	for _, p := range all {
		if !p.inProgram() || mayRead[p.path] != "" {
			continue
		}
		complain := func(at ast.Node, what string) {
			findings = append(findings, fmt.Sprintf("%s reads %s", p.fset.Position(at.Pos()).String(), what))
		}
		for _, file := range p.files {
			written := map[ast.Expr]bool{}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, to := range n.Lhs {
						written[to] = true
					}
				case *ast.IndexExpr:
					if name := p.text(n.Index); !written[n] && slices.Contains(ofMessages, name) {
						complain(n, name)
					}
				case *ast.CallExpr:
					if into := p.decodedInto(n); into != nil {
						if name := memberOfMessage(into, map[types.Type]bool{}); name != "" {
							complain(n, name)
						}
					}
				}
				return true
			})
		}
	}
	return findings
}

// text returns the value of a constant text, or "".
func (p *pkg) text(e ast.Expr) string {
	if v := p.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v)
	}
	return ""
}

// decodedInto returns the type that a call decodes JSON into, or nil if it is no such call: of a function with such a
// name, the type of the last argument that is a pointer.
func (p *pkg) decodedInto(call *ast.CallExpr) types.Type {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
	case *ast.Ident:
		name = f.Name
	}
	if !strings.HasPrefix(name, "Unmarshal") && !strings.HasPrefix(strings.ToLower(name), "decode") {
		return nil
	}
	for _, arg := range slices.Backward(call.Args) {
		if u, is := arg.(*ast.UnaryExpr); is && u.Op == token.AND {
			return p.info.TypeOf(u.X)
		}
		if ptr, is := p.info.TypeOf(arg).(*types.Pointer); is {
			return ptr.Elem()
		}
	}
	return nil
}

// memberOfMessage returns a member of a message or of a part that JSON is decoded into, or "".
func memberOfMessage(t types.Type, seen map[types.Type]bool) string {
	if seen[t] {
		return ""
	}
	seen[t] = true
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		return memberOfMessage(u.Elem(), seen)
	case *types.Slice:
		return memberOfMessage(u.Elem(), seen)
	case *types.Array:
		return memberOfMessage(u.Elem(), seen)
	case *types.Map:
		return memberOfMessage(u.Elem(), seen)
	case *types.Struct:
		var names []string
		for i := range u.NumFields() {
			f := u.Field(i)
			name, _, _ := strings.Cut(reflect.StructTag(u.Tag(i)).Get("json"), ",")
			if name == "" {
				name = strings.ToLower(f.Name())
			}
			if name == "-" || !f.Exported() && !f.Anonymous() {
				continue
			}
			names = append(names, name)
			if slices.Contains(ofMessages, name) {
				return name
			}
			if name := memberOfMessage(f.Type(), seen); name != "" {
				return name
			}
		}
		if slices.Contains(names, "role") && slices.Contains(names, "content") {
			return "role and content"
		}
	}
	return ""
}

func TestReadersOfMessagesAreFound(t *testing.T) {
	t.Parallel()
	const json = "func Unmarshal([]byte, any) error { return nil }\n"
	found := messageReaders(planted(t,
		fault{messageRoom, "package message\n" + json + "func Read() { var m struct{ Role, Content string }\n" +
			"Unmarshal(nil, &m) }\n"},
		fault{"services/a", "package a\n" + json + "func f() { var m []struct{ Role, Content string }\n" +
			"Unmarshal(nil, &m) }\n"},
		fault{"services/b", "package b\n" + json + "type part struct { ImageURL string `json:\"image_url\"` }\n" +
			"type list struct{ Of []*part }\nfunc f(l *list) { Unmarshal(nil, l) }\n"},
		fault{"services/c", "package c\n" +
			"func f(m map[string]string) string { m[\"tool_calls\"] = \"\"; return m[\"role\"] }\n" +
			"func g(m map[string]string) string { return m[\"tool_calls\"] }\n"},
		fault{"services/d", "package d\n" + json + "func f() { var m struct{ Role string }\nUnmarshal(nil, &m) }\n"},
	))
	require.Equal(t, []string{
		"services/a/a.go:4:1 reads role and content", "services/b/a.go:5:19 reads image_url",
		"services/c/a.go:3:45 reads tool_calls",
	}, found)
}
