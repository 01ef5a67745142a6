package house_test

import (
	"fmt"
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
	"events.TurnCorrected": "stored: the form of a fact in the log; the command Finalize may change without it",
	"events.TurnStarted":   "stored: the form of a fact in the log; the commands may change without it",
	"events.TurnFinalized": "stored: the form of a fact in the log; the command Finalize may change without it",
	"events.TurnRecorded":  "stored: the form of a fact in the log; the commands may change without it",
	"events.TurnExtended":  "stored: the form of a fact in the log; the command Extend may change without it",
	"events.TurnPruned":    "stored: the form of a fact in the log; the command Prune may change without it",
	"events.TurnRedacted":  "stored: the form of a fact in the log; its commands may change without it",
	"events.SessionMark":   "stored: the form in the log of a state's counts",
	"events.Recorded":      "an event as the log has it; a receipt's position and subject are its own",
	"services/client": "a client's own types: programs outside import them, and the JSON of the API is " +
		"their form",
	"services/export.TurnRow":             "wire form: the columns of a table of turns",
	"services/export.WhatIfRow":           "wire form: the columns of a table of what models were told",
	"services/export.EventRow":            "wire form: the columns of a table of events",
	"services/backup.ErasureData":         "wire form: the data of an erasure's CloudEvent in a backup",
	"services/backup.File":                "stored: a line of a backup's manifest",
	"projections/rebuild.Config":          "settings: each component has its own",
	"projections/fleet.Config":            "settings: each component has its own",
	"services/export/explain.Explanation": "wire form: what turnledger explain --json prints",
	"services/access/apikeys.Key":         "stored: a key in its file; access.Key is what may be shown of it",
}

// A noun has one type: what two packages speak of is declared in services, projections or events.
func TestNounsAreDeclaredOnce(t *testing.T) {
	t.Parallel()
	all := nouns(modulePackages(t))
	require.Greater(t, len(all), 50)
	for name, why := range apart {
		require.NotEmpty(t, why, name)
	}
	require.Empty(t, twins(all))
}

// noun is an exported struct, its fields by name with their types.
type noun struct {
	pkg, name string
	fields    map[string]string
}

func nouns(all []*pkg) (out []noun) {
	declared(all, func(p *pkg, spec *ast.TypeSpec, typ types.Type, _ string) {
		name := spec.Name.Name
		s, ok := typ.Underlying().(*types.Struct)
		_, alias := typ.(*types.Alias) // it declares nothing
		if !ok || alias || !ast.IsExported(name) || apart[p.path] != "" || apart[p.path+"."+name] != "" {
			return
		}
		n := noun{p.path, name, map[string]string{}}
		for f := range s.Fields() {
			n.fields[f.Name()] = types.TypeString(f.Type(), nil)
		}
		out = append(out, n)
	})
	return out
}

func twins(all []noun) (findings []string) {
	for i, a := range all {
		for _, b := range all[:i] {
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
				const both = "%s.%s and %s.%s both have %s"
				findings = append(findings,
					fmt.Sprintf(both, a.pkg, a.name, b.pkg, b.name, strings.Join(same, ", ")))
			}
		}
	}
	return findings
}

func TestTwinsAreFound(t *testing.T) {
	t.Parallel()
	const four = " struct { ID, Session string; At int64; Done bool; "
	found := twins(nouns(planted(t,
		fault{"services", "package services\ntype Turn" + four + "Question string }\n"},
		fault{"events", "package events\ntype Fact" + four + "Kind string }\n"},
		fault{"services/a", "package a\ntype Entry" + four + "Answer string }\ntype turn" + four + "}\n"},
		fault{"services/b", "package b\ntype Three struct { ID, Session string; At int64; Done int }\n"},
		fault{"services/client", "package client\ntype Turn" + four + "}\n"},
	)))
	require.Equal(t, []string{
		"events.Fact and services.Turn both have At, Done, ID, Session",
		"services/a.Entry and services.Turn both have At, Done, ID, Session",
		"services/a.Entry and events.Fact both have At, Done, ID, Session",
	}, found)
}
