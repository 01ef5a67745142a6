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
	log := openOn(t, natstest.Connect(t, s), jetlog.Config{GateDir: s.GateDir(), ReadBytes: bytes})
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
		logtest.Append(t, log, facts...)
	}
	const all, most = turns * 3 / 2, 4 * 300_000
	stands := openTail(t, log, 0, jetlog.TailOptions{Decode: true})
	first := next(t, stands)
	readAll(t, openTail(t, log, 0, jetlog.TailOptions{Decode: true}), 0, all, most)
	readAll(t, stands, first[len(first)-1].Position.Seq, all, most)
}

// readAll reads a tail up to a sequence, in batches of so many bytes at most.
func readAll(t *testing.T, tail *jetlog.Tail, after, upTo uint64, most int) {
	t.Helper()
	for after < upTo {
		batch := next(t, tail)
		for _, m := range batch {
			after++
			require.Equal(t, after, m.Position.Seq)
		}
		require.LessOrEqual(t, sizeOf(batch), most+64<<10)
	}
	require.Equal(t, upTo, after)
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
	steady := func() (now int) {
		t.Helper()
		hang.Until(t, func() bool {
			before := now
			<-time.After(300 * time.Millisecond) // nothing tells that a tail fetches no more
			now = log.Room().Used()
			return now == before && now > 0
		})
		return now
	}
	only := openTail(t, log, 0, jetlog.TailOptions{Decode: true})
	next(t, only)
	steady()
	inHand := next(t, only)
	steady()
	ahead := next(t, only)
	require.LessOrEqual(t, sizeOf(inHand)+sizeOf(ahead), room/2+64<<10)
	only.Close()
	tails := []*jetlog.Tail{}
	least := 0
	for range 4 {
		tails = append(tails, openTail(t, log, 0, jetlog.TailOptions{Decode: true}))
		next(t, tails[len(tails)-1])
		now := steady()
		require.Greater(t, now, least, "a tail more finds room")
		require.LessOrEqual(t, now-least, (room-least)/2)
		least = now
	}
	for _, tail := range tails {
		tail.Close()
	}
	require.Zero(t, log.Room().Used())
}
