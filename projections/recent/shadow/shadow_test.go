package shadow_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/shadow"
)

// still is a view that stands where it is.
type still struct {
	snap recent.Snapshot
	err  error
}

func (s still) Load(context.Context, string, int, int) (recent.Snapshot, error) { return s.snap, s.err }
func (s still) Wait(context.Context, events.Position) error                     { return nil }

// holding returns a view of a session whose turns ask these questions, at a position; one
// that has lost turns keeps so many.
func holding(at uint64, keep int, questions ...string) still {
	s := session.New("s", session.Rules{})
	for i, q := range questions {
		f := turntest.Started("s", string(rune('a'+i)), q)
		s.Fold(events.Recorded{ID: f.EventID(), SessionID: "s", Fact: f, Time: time.Unix(int64(i), 0),
			Position: events.Position{Seq: uint64(i + 1)}})
	}
	s.DropOldest(keep)
	return still{snap: recent.Snapshot{State: s, Applied: events.Position{Seq: at}}}
}

//conformance:i82
func TestDifferencesAreCountedAndLoggedWithoutText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second still
		want          string
	}{
		"the same":             {holding(9, 9, "a", "b"), holding(9, 9, "a", "b"), "same"},
		"fewer turns are held": {holding(9, 9, "a", "b"), holding(9, 1, "a", "b"), "same"},
		"other words":          {holding(9, 9, "a", "b"), holding(9, 9, "a", "secret"), "different"},
		"none at all": {holding(9, 9, "a"), still{snap: recent.Snapshot{Applied: events.Position{Seq: 9}}},
			"different"},
		"behind": {holding(9, 9, "a", "b"), holding(8, 9, "a"), "behind"},
		"away":   {holding(9, 9, "a", "b"), still{err: errors.New("away")}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			reg := prometheus.NewRegistry()
			s := shadow.New(c.first, c.second, reg, slog.New(slog.NewTextHandler(&log, nil)))
			got := must.Get(s.Load(t.Context(), "s", 0, 5))(t)
			require.Same(t, c.first.snap.State, got.State, "the first one answers")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			hang.Until(t, func() bool {
				n, err := testutil.GatherAndCount(reg)
				return err == nil && n == 1
			})
			cancel()
			require.NoError(t, <-done)
			require.Equal(t, c.want, must.Get(reg.Gather())(t)[0].Metric[0].Label[0].GetValue())
			require.Equal(t, c.want == "different", bytes.Contains(log.Bytes(), []byte("holds something else")))
			require.NotContains(t, log.String(), "secret")
		})
	}
}
