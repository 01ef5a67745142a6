package jetlog_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// roomyLog is a log whose tails have so many bytes beside their floors.
func roomyLog(t *testing.T, bytes int) *jetlog.Log {
	t.Helper()
	s := natstest.Server(t)
	log, err := jetlog.Open(t.Context(), natstest.Connect(t, s),
		jetlog.Config{Partitions: 1, GateDir: s.GateDir(), ReadBytes: bytes})
	require.NoError(t, err)
	s.StageInMemory()
	return log
}

// Where there is no room, each tail still brings every event, also one that is larger than its floor and one that waits
// for the other half of its change, and no tail waits for the reader of another.
func TestTailsInAFullRoomBringEveryEvent(t *testing.T) {
	t.Parallel()
	log := roomyLog(t, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	const turns = 60
	for i := range turns {
		text := strings.Repeat("t", []int{10, 2000, 40_000, 300_000}[rng.IntN(4)])
		start := logtest.Started("s", string(rune('a'+i)), text)
		facts := []events.Fact{start}
		if i%2 == 0 {
			facts = append(facts, &events.TurnFinalized{TurnID: start.TurnID, SessionID: "s",
				Answer: events.Answer{AnswerNeutral: text}})
		}
		_, err := log.Append(t.Context(), jetlog.Append{Facts: facts})
		require.NoError(t, err)
	}
	const all, most = turns * 3 / 2, 4 * 300_000
	ctx := deadline(t, time.Minute)
	stands := openTail(t, log, 0, jetlog.TailOptions{Decode: true})
	first, err := stands.Next(ctx)
	require.NoError(t, err)
	seq := readAll(t, openTail(t, log, 0, jetlog.TailOptions{Decode: true}), 0, all, most)
	require.EqualValues(t, all, seq)
	seq = readAll(t, stands, first[len(first)-1].Position.Seq, all, most)
	require.EqualValues(t, all, seq)
}

// readAll reads a tail up to a sequence, in batches of so many bytes at most.
func readAll(t *testing.T, tail *jetlog.Tail, after, upTo uint64, most int) uint64 {
	t.Helper()
	for ctx := deadline(t, time.Minute); after < upTo; {
		batch, err := tail.Next(ctx)
		require.NoError(t, err)
		for _, m := range batch {
			after++
			require.Equal(t, after, m.Position.Seq)
		}
		require.LessOrEqual(t, sizeOf(batch), most+64<<10)
	}
	return after
}

func sizeOf(batch []jetlog.Message) (n int) {
	for _, m := range batch {
		n += m.Size()
	}
	return n
}

// A tail whose reader stands still holds at most half of the room, and one more at most half of what that leaves.
func TestATailLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	const room = 4 << 20
	log := roomyLog(t, room)
	text := strings.Repeat("t", 20_000)
	for i := range 300 {
		logtest.Add(t, log, "s", string(rune('a'+i)), text)
	}
	used := func() int { return log.Room().Used() }
	steady := func() (now int) {
		t.Helper()
		hang.Until(t, func() bool {
			before := now
			<-time.After(300 * time.Millisecond) // nothing tells that a tail fetches no more
			now = used()
			return now == before && now > 0
		})
		return now
	}
	next := func(tail *jetlog.Tail) []jetlog.Message {
		t.Helper()
		batch, err := tail.Next(t.Context())
		require.NoError(t, err)
		return batch
	}
	only := openTail(t, log, 0, jetlog.TailOptions{Decode: true})
	next(only)
	steady()
	inHand := next(only)
	steady()
	ahead := next(only)
	require.LessOrEqual(t, sizeOf(inHand)+sizeOf(ahead), room/2+64<<10)
	only.Close()
	tails := []*jetlog.Tail{}
	least := 0
	for range 4 {
		tails = append(tails, openTail(t, log, 0, jetlog.TailOptions{Decode: true}))
		next(tails[len(tails)-1])
		now := steady()
		require.Greater(t, now, least, "a tail more finds room")
		require.LessOrEqual(t, now-least, (room-least)/2)
		least = now
	}
	for _, tail := range tails {
		tail.Close()
	}
	require.Zero(t, used())
}
