package export_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/export"
)

// people are the sessions a, and its branch b; whoever has read both finds the turn of a redacted.
type people struct {
	reads map[string]int
	asked []services.EventQuery
}

func (p *people) Read(_ context.Context, ask services.Ask) (services.Reading, error) {
	p.reads[ask.SessionID]++
	a := session.New("a", session.Rules{})
	facts := []events.Fact{
		&events.SessionLinked{SessionID: "a", IdentityID: "ada"},
		&events.TurnRecorded{SessionID: "a", RequestID: "r", TurnID: events.TurnID("a", "r"),
			Question: events.Question{QuestionNeutral: "secret"}, Answer: events.Answer{AnswerNeutral: "answer"}},
	}
	if p.reads["a"] > 1 {
		facts = append(facts, &events.TurnRedacted{SessionID: "a", TurnID: events.TurnID("a", "r")})
	}
	for i, f := range facts {
		a.Fold(events.Recorded{Fact: f, Position: events.Position{Seq: uint64(i + 1)}, Time: time.Unix(int64(i), 0)})
	}
	return services.Reading{State: a}, nil
}

func (p *people) OpenEvents(_ context.Context, q services.EventQuery) (services.EventStream, error) {
	p.asked = append(p.asked, q)
	return &stream{at: uint64(len(p.asked))}, nil
}

func (*people) Receipt(context.Context, string) (services.Receipt, error) {
	return services.Receipt{}, services.ErrNoReceipt
}

func (*people) Receipts(context.Context, services.ReceiptsAsk) (services.ReceiptPage, error) {
	all := []services.Receipt{{ID: "of ada", Owner: "ada"}, {ID: "of bob", Owner: "bob"}}
	return services.ReceiptPage{Receipts: all}, nil
}

// stream is the first reading, then one of a redaction, then nothing.
type stream struct {
	at   uint64
	done bool
}

func (s *stream) Next(context.Context) ([]services.Event, error) {
	if s.done || s.at > 2 {
		return nil, io.EOF
	}
	s.done = true
	typ := map[uint64]string{1: events.TypeTurnRecorded, 2: events.TypeTurnRedacted}[s.at]
	return []services.Event{{JSON: fmt.Appendf(nil, `{"type":%q,"subject":"a"}`, typ)}}, nil
}

func (*stream) From() events.Cursor       { return nil }
func (*stream) End() events.Cursor        { return nil }
func (s *stream) Position() events.Cursor { return events.Cursor{0: s.at} }
func (*stream) Close()                    {}

// What is redacted while an archive is made is not in it.
func TestARedactionMeanwhileWins(t *testing.T) {
	t.Parallel()
	p := &people{reads: map[string]int{}}
	var out bytes.Buffer
	require.NoError(t, export.People{Events: p, Sessions: p, Receipts: p}.Archive(t.Context(), "ada", &out))
	files, all := must.Get(zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len())))(t), map[string]string{}
	for _, f := range files.File {
		all[f.Name] = string(must.Get(io.ReadAll(must.Get(f.Open())(t)))(t))
	}
	require.NotContains(t, fmt.Sprint(all), "secret")
	require.Contains(t, all["receipts.json"], "of ada")
	require.NotContains(t, all["receipts.json"], "of bob")
	var session struct{ Turns []any }
	require.NoError(t, json.Unmarshal([]byte(all["sessions/a.json"]), &session))
	require.Empty(t, session.Turns)
	require.Equal(t, 2, p.reads["a"])
	require.Equal(t, []events.Position{{Seq: 2}}, p.asked[2].From)
}
