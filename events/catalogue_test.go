package events_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

// TestCatalogue checks each event of the catalogue for what somebody who adds an event may forget.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	t.Run("has a row for each fact of the package, and for each type", func(t *testing.T) {
		t.Parallel()
		facts, types := declared(t)
		var rows []string
		for _, typ := range events.Types() {
			rows = append(rows, reflect.TypeOf(events.Zero(typ)).Elem().Name())
		}
		require.ElementsMatch(t, facts, rows, "add a row: event[X]() in events/catalogue.go")
		require.ElementsMatch(t, types, events.Types())
	})
	t.Run("has samples of each event", func(t *testing.T) {
		t.Parallel()
		for _, samples := range [][]events.Fact{fullFacts(), leastFacts()} {
			var types []string
			for _, f := range samples {
				types = append(types, f.Type())
			}
			require.ElementsMatch(t, events.Types(), types,
				"add it to fullFacts and leastFacts in events/samples_test.go")
		}
	})
	for _, typ := range events.Types() {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			t.Run("names each turn that it holds", func(t *testing.T) { t.Parallel(); namesItsTurns(t, typ) })
			t.Run("brings each text that it holds", func(t *testing.T) { t.Parallel(); bringsItsTexts(t, typ) })
			t.Run("states nothing by an empty body", func(t *testing.T) {
				t.Parallel()
				env := envelope(events.Zero(typ))
				require.NotEmpty(t, events.Decode(env, at(1), recordedAt).Problem, "check takes anything")
			})
		})
	}
}

// namesItsTurns: an event is erased with the turns that it names. A process that does not know the
// type yet finds them by the names of the members, and so must this one.
func namesItsTurns(t *testing.T, typ string) {
	t.Helper()
	f := fresh(typ)
	for _, field := range reflect.VisibleFields(reflect.TypeOf(f).Elem()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		value := reflect.ValueOf(f).Elem().FieldByIndex(field.Index)
		inner := field.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		switch {
		case field.Anonymous: // its members come by themselves
		case inner == reflect.TypeFor[events.Segment](): // turns of other sessions, which a branch shares without text
		case inner == reflect.TypeFor[events.Tombstone](): // versions of the turn that the redaction names
		case inner.Kind() == reflect.Struct:
			for nested, field := range members(inner) {
				require.False(t, holdsTurn(nested, field.Type),
					"%s.%s: an id of a turn must be a member of the event itself", name, nested)
			}
		case name == "turn_ids": // turns whose texts the event repeats
			id := uuid.New()
			value.Set(reflect.ValueOf([]uuid.UUID{id}))
			require.Contains(t, events.Covers(f), id, "Covers lacks %s: the event would outlive its turns", name)
		case holdsTurn(name, inner):
			require.Contains(t, []string{"turn_id", "replaces_turn_id"}, name,
				"older processes do not know a turn under this name")
			id := uuid.New()
			value.Set(reflect.ValueOf(id))
			got := events.NamesOf(f)
			require.Contains(t, []uuid.UUID{got.TurnID, got.ReplacesTurnID}, id,
				"names() lacks %s: the event would outlive its turn", name)
		}
	}
}

func holdsTurn(name string, typ reflect.Type) bool {
	return typ == reflect.TypeFor[uuid.UUID]() || typ == reflect.TypeFor[*uuid.UUID]() ||
		strings.Contains(name, "turn_id")
}

// bringsItsTexts: views fill a turn with the texts that its events bring.
func bringsItsTexts(t *testing.T, typ string) {
	t.Helper()
	f := fresh(typ)
	texts := events.TextsOf(f)
	for _, field := range reflect.VisibleFields(reflect.TypeOf(f).Elem()) {
		value := reflect.ValueOf(f).Elem().FieldByIndex(field.Index)
		switch half := value.Addr().Interface().(type) {
		case *events.Question:
			require.Same(t, half, texts.Question)
		case *events.Answer:
			require.Same(t, half, texts.Answer)
		case *events.Extension:
			require.Same(t, half, texts.Extension)
		}
	}
}

func fresh(typ string) events.Fact {
	return reflect.New(reflect.TypeOf(events.Zero(typ)).Elem()).Interface().(events.Fact)
}

// TestRemains: of an event whose turn is redacted, the ids may be shown and nothing else.
func TestRemains(t *testing.T) {
	t.Parallel()
	for _, f := range fullFacts() {
		left, hides := events.Remains(f)
		holds := events.NamesOf(f).TurnID != uuid.Nil
		redacts := f.Type() == events.TypeTurnRedacted
		require.Equal(t, holds && !redacts, hides, f.Type())
		for name, value := range object(t, f) {
			if !hides || !strings.HasSuffix(name, "_id") {
				continue
			}
			require.Contains(t, []any{
				left.TurnID.String(), left.ReplacesTurnID.String(), left.SessionID, left.RequestID,
				left.ExtensionID, left.PruneID,
			}, value, "%s: the ids stay", f.Type())
		}
	}
}

// declared returns the names of the package's facts, and its types of events, as its files say them.
func declared(t *testing.T) (facts, types []string) {
	t.Helper()
	for _, name := range must.Get(filepath.Glob("*.go"))(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))(t)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "withdraws" && f.Recv != nil {
				facts = append(facts, f.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Type") || len(spec.Values) == 0 {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
				types = append(types, must.Get(strconv.Unquote(lit.Value))(t))
			}
			return true
		})
	}
	return facts, types
}

// What takes texts of turns away is said by the type's own withdrawal: there is no second list.
//
//conformance:c4
func TestWithdrawsIsSaidByTheType(t *testing.T) {
	t.Parallel()
	var withdraw []string
	for _, typ := range events.Types() {
		require.Equal(t, events.WithdrawalOf(typ) >= events.WithdrawsVersion, events.Withdraws(typ), typ)
		if events.Withdraws(typ) {
			withdraw = append(withdraw, typ)
		}
	}
	require.ElementsMatch(t, []string{events.TypeTurnCorrected, events.TypeTurnPruned, events.TypeTurnRedacted,
		events.TypeSessionErased, events.TypeIdentityErased}, withdraw)
}

// The outside contract lists the types that a publisher may write and a reader may meet.
func TestTheContractNamesEachEvent(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/contract.md"))(t)
	for _, typ := range events.Types() {
		require.Contains(t, string(page), "`"+typ+"`")
	}
}
