package contextbuilder_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/read"
)

// at builds with a clock that stands so far ahead.
func at(t testing.TB, r *read.Reader, ahead time.Duration, req services.ContextRequest) services.Context {
	t.Helper()
	b := contextbuilder.NewBuilder(r, contextbuilder.Config{Now: func() time.Time { return time.Now().Add(ahead) }})
	req.Message = "now"
	return must.Get(b.Build(t.Context(), req))(t)
}

// TestASilenceEndsAnAnonymousSession also before anything is recorded after it: the
// prompt of the first question behind the silence shows nothing of what was before.
//
//conformance:h54
func TestASilenceEndsAnAnonymousSession(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	record(t, log, "s", "r", "q0", "a0")
	natstest.Append(t, log, &events.SessionLinked{SessionID: "linked", IdentityID: "ada"})
	last := record(t, log, "linked", "r", "q0", "a0")
	for name, view := range map[string]read.View{"view": fed(t, log, last), "log": nil} {
		reader := read.New(log, read.Config{View: view, Rules: rules})
		for ahead, want := range map[time.Duration][]string{rules.SessionTTL - time.Minute: exchange(0, 1),
			rules.SessionTTL + time.Minute: exchange(0, 0)} {
			require.Equal(t, want, texts(t, at(t, reader, ahead, services.ContextRequest{SessionID: "s"})),
				"%s, %s ahead", name, ahead)
			require.Equal(t, exchange(0, 1), texts(t, at(t, reader, ahead,
				services.ContextRequest{SessionID: "linked"})), "%s, %s ahead, linked", name, ahead)
		}
	}
}

// TestAnOlderTurnIsAnsweredAgain holds that the history of any turn is what was before it,
// also where it is older than what a view gives for a prompt.
func TestAnOlderTurnIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	const turns = 40
	log, recorded := recorded(t, turns)
	view := fed(t, log, events.Position{Seq: recorded[turns-1]})
	for name, b := range map[string]*contextbuilder.Builder{"view": builder(log, view), "log": builder(log, nil)} {
		for i := range turns {
			r := must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: "s", Message: "now", MaxMessages: 4,
				TurnID: events.TurnID("s", fmt.Sprint(i))}))(t)
			require.Equal(t, exchange(max(i-2, 0), i), texts(t, r), "%s, turn %d", name, i)
		}
	}
}

// TestAnErasedSessionHasNoPast: as of a time before its erasure either.
func TestAnErasedSessionHasNoPast(t *testing.T) {
	t.Parallel()
	log, recorded := recorded(t, 3)
	b := builder(log, nil)
	then := services.ContextRequest{SessionID: "s", Message: "now",
		AsOf: &services.AsOf{Position: &events.Position{Seq: recorded[1]}}}
	r := must.Get(b.Build(t.Context(), then))(t)
	require.Equal(t, exchange(0, 2), texts(t, r))
	natstest.Append(t, log, &events.SessionErased{SessionID: "s", ReceiptID: "receipt"})
	r = must.Get(b.Build(t.Context(), then))(t)
	require.Equal(t, exchange(0, 0), texts(t, r))
	require.False(t, r.SessionFound)
}

// asked is a memory that notes what it is asked.
type asked struct{ last services.MemoryQuery }

func (a *asked) Snippet(_ context.Context, q services.MemoryQuery) (services.MemorySnippet, error) {
	a.last = q
	return services.MemorySnippet{}, nil
}

// TestTheMemoryIsToldOfAGuestsBoundary: what a guest said before a reset or a silence is
// not remembered after it, also where the client brings the history itself; an identity's memory has no
// boundary.
func TestTheMemoryIsToldOfAGuestsBoundary(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for _, session := range []string{"guest", "reset", "linked"} {
		record(t, log, session, "r", "q", "a")
	}
	reset := natstest.Append(t, log, &events.SessionReset{SessionID: "reset"})
	natstest.Append(t, log, &events.SessionLinked{SessionID: "linked", IdentityID: "ada"})
	last := natstest.Append(t, log, &events.SessionReset{SessionID: "linked"})
	for name, view := range map[string]read.View{"view": fed(t, log, last), "log": nil} {
		reader := read.New(log, read.Config{View: view, Rules: rules})
		for _, c := range []struct {
			session, names string
			ahead          time.Duration
			want           services.MemoryQuery
		}{
			{session: "guest"},
			{session: "nobody"},
			{session: "reset", want: services.MemoryQuery{After: reset.Seq}},
			{session: "guest", ahead: rules.SessionTTL + time.Minute,
				want: services.MemoryQuery{After: math.MaxUint64}},
			{session: "linked", want: services.MemoryQuery{IdentityID: "ada"}},
			{session: "reset", names: "eve", want: services.MemoryQuery{IdentityID: "eve"}},
		} {
			memory := &asked{}
			b := contextbuilder.NewBuilder(reader, contextbuilder.Config{Memory: memory,
				Now: func() time.Time { return time.Now().Add(c.ahead) }})
			c.want.SessionID, c.want.Message = c.session, "m"
			for _, own := range [][]json.RawMessage{nil, {}, {json.RawMessage(`{"role":"user","content":"hi"}`)}} {
				must.Get(b.Build(t.Context(), services.ContextRequest{SessionID: c.session, Message: "m",
					IdentityID: c.names, Memory: true, History: own}))(t)
				memory.last.Shown = nil
				require.Equal(t, c.want, memory.last, "%s, %s, a history of %d messages from the client", name,
					c.session, len(own))
			}
		}
	}
}
