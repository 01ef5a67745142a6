package follower

import (
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
)

// An event that is folded may be erased. A reader that comes right then, while another reader has the ring hold the
// event, joins behind it.
func TestAReaderJoinsBehindWhatIsFolded(t *testing.T) {
	t.Parallel()
	p := New(natstest.Log(t, 1), Config{}).parts[0]
	p.raw.start(0)
	p.raw.hold(p.read.Load)
	taken := make(chan struct{})
	h := p.raw.hold(func() uint64 {
		go func() {
			p.take([]jetlog.Message{{Position: at(0, 1)}})
			close(taken)
		}()
		require.NoError(t, p.folded.Wait(t.Context(), 1))
		return p.read.Load()
	})
	<-taken
	require.EqualValues(t, 1, h.at)
	c, some := p.oldestPending(1)
	require.True(t, some, "the other reader is given it")
	require.EqualValues(t, 1, c.last)
}
