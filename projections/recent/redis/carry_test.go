package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// A version before the desk kept dead letters in Redis: who claims their partition takes them over.
func TestFormerDeadLettersAreCarriedOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.turns(t, "s", 3)
	f.feed.All(6)
	var want []projections.DeadLetter
	for _, seq := range []uint64{2, 5} {
		dead := projections.DeadLetter{
			Projection: "recent", Position: events.Position{Seq: seq}, EventID: fmt.Sprint("e", seq), Type: "t",
			SessionID: "s",
			Reason:    "a test", Attempts: 2, ParkedAt: time.Unix(int64(seq), 0).UTC(),
		}
		other := dead
		other.Position.Partition = 1
		want = append(want, dead)
		for _, l := range []projections.DeadLetter{dead, other} {
			f.do(t, "RPUSH", strings.TrimSuffix(f.view.Key(1, "", ""), "::")+":dead", rueidis.JSON(l))
		}
	}
	var got []projections.DeadLetter
	keep := func(_ context.Context, l projections.DeadLetter) error {
		got = append(got, l)
		return nil
	}
	require.NoError(t, f.view.Carry(t.Context(), 0, keep))
	require.Equal(t, want, got)
	require.NoError(t, f.view.Carry(t.Context(), 0, keep))
	require.Len(t, got, 2, "once")
	require.NoError(t, f.view.Carry(t.Context(), 1, keep))
	require.Len(t, got, 4)
}
