package replay

import (
	"errors"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

// TestAReadingThatFailedHasNoEnd: a stream hands on what it has read before a failure, and asks again. The failure must
// be met then, or the reading would end as if the session had no more events.
func TestAReadingThatFailedHasNoEnd(t *testing.T) {
	t.Parallel()
	failed := errors.New("the log does not answer")
	b := &backlog{end: 5}
	b.pull, b.stop = iter.Pull2(func(yield func(events.Recorded, error) bool) {
		if yield(events.Recorded{Position: events.Position{Seq: 1}}, nil) {
			yield(events.Recorded{}, failed)
		}
	})
	defer b.close()
	require.True(t, must.Get(b.more(t.Context()))(t))
	require.Equal(t, uint64(1), b.take().Position.Seq)
	for range 2 {
		must.Fail(b.more(t.Context()))(t, failed)
	}
}
