package eraser_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// Sessions of a kind have ages of their own, linked or not: the rule for anonymous sessions leaves them alone.
//
//conformance:o46
func TestWhatIsTooOldOfAKindGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	describe := func(session string, kind events.SessionKind) {
		must.Get(w.history.DescribeSession(t.Context(), conversation.Describe{SessionID: session, Kind: kind}))(t)
	}
	for _, kind := range []events.SessionKind{events.KindConversation, events.KindResponse} {
		for _, session := range []string{"empty", "anonymous", "linked", "active"} {
			describe(session+" "+string(kind), kind)
			if session != "empty" {
				w.turn(session+" "+string(kind), "r1", "SECRET")
			}
		}
		w.link("linked "+string(kind), "alice")
	}
	w.turn("plain", "r1", "old")
	cut := time.Now().Add(10 * time.Millisecond)
	hang.Until(t, func() bool { return time.Now().After(cut) })
	w.turn("active conversation", "r2", "new")
	w.turn("active response", "r2", "new")

	const day = 24 * time.Hour
	now := cut
	cfg := eraser.RetentionConfig{Rules: rules, Anonymous: 10 * day, Response: 30 * day, Conversation: 90 * day,
		Now: func() time.Time { return now },
		Erase: func(ctx context.Context, session string) error {
			_, err := w.history.EraseSession(ctx, session, services.Erasure{Reason: "retention"})
			return err
		}}
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, cfg)
	sweep := func(days int, want services.Swept) {
		t.Helper()
		now = cut.Add(time.Duration(days) * day)
		got := must.Get(r.DrySweep(t.Context()))(t)
		require.Equal(t, want, got)
		got = must.Get(r.Sweep(t.Context()))(t)
		require.Equal(t, want, got)
	}
	gone := func(kind string) {
		t.Helper()
		for _, session := range []string{"empty", "anonymous"} {
			require.Empty(t, w.types(session+kind))
		}
		require.NotZero(t, w.state("linked"+kind).Erased)
	}
	sweep(10, services.Swept{Sessions: 1, Events: 2})
	require.Empty(t, w.types("plain"))
	sweep(30, services.Swept{Sessions: 2, Events: 4, LinkedSessions: 1, Turns: 1})
	gone(" response")
	require.Len(t, w.types("active response"), 5)
	require.Len(t, w.types("empty conversation"), 1)
	sweep(31, services.Swept{Sessions: 1, Events: 5}) // it was held
	require.Empty(t, w.types("active response"))
	sweep(90, services.Swept{Sessions: 2, Events: 4, LinkedSessions: 1, Turns: 1})
	gone(" conversation")
	require.Len(t, w.types("active conversation"), 5)
	sweep(91, services.Swept{Sessions: 1, Events: 5})
	require.Empty(t, w.types("active conversation"))
}
