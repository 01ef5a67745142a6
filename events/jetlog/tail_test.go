package jetlog_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

func openTail(t *testing.T, log *jetlog.Log, after uint64, opts jetlog.TailOptions) *jetlog.Tail {
	t.Helper()
	tail := must.Get(log.Tail(t.Context(), 0, after, opts))(t)
	t.Cleanup(tail.Close)
	return tail
}

// next returns the next batch of a tail.
func next(t *testing.T, tail *jetlog.Tail) []jetlog.Message {
	t.Helper()
	return must.Get(tail.Next(deadline(t, hang.Limit)))(t)
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestTailFollowsInOrder(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			_, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", fmt.Sprint(i))}})
			assert.NoError(t, err)
		})
	}
	followed(t, tail, 500)
	wg.Wait()
}

func TestTailBeginsAfterASequence(t *testing.T) {
	t.Parallel()
	log, stream, _ := logtest.Gated(t)
	for i := range 10 {
		logtest.Add(t, log, "s", fmt.Sprint(i), "x")
	}
	require.NoError(t, stream.DeleteMsg(t.Context(), 8))
	got := next(t, openTail(t, log, 6, jetlog.TailOptions{MaxBatch: 2}))
	require.LessOrEqual(t, len(got), 2)
	require.EqualValues(t, 7, got[0].Position.Seq)
	got = next(t, openTail(t, log, 7, jetlog.TailOptions{}))
	require.EqualValues(t, 9, got[0].Position.Seq, "what was erased leaves a gap")
	_, err := log.Tail(t.Context(), 0, 11, jetlog.TailOptions{})
	require.ErrorIs(t, err, jetlog.ErrStream)
	require.ErrorContains(t, err, "rebuild the projections")
	end := openTail(t, log, 10, jetlog.TailOptions{})
	must.Fail(end.Next(deadline(t, 20*time.Millisecond)))(t, context.DeadlineExceeded)
	at := logtest.Add(t, log, "s", "10", "x")
	require.Equal(t, at, next(t, end)[0].Position)
}

// TestTailGoesOnWhereItsConsumerIsLost takes each consumer away, as a server that
// lost power does with those it keeps in memory.
func TestTailGoesOnWhereItsConsumerIsLost(t *testing.T) {
	t.Parallel()
	log, stream, _ := logtest.Gated(t)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	for round := range 5 {
		for name := range stream.ConsumerNames(t.Context()).Name() {
			require.NoError(t, stream.DeleteConsumer(t.Context(), name))
		}
		at := logtest.Add(t, log, "s", fmt.Sprint(round), "x")
		got := next(t, tail)
		require.Len(t, got, 1)
		require.Equal(t, at, got[0].Position)
	}
}

func TestTailSurvivesItsConnection(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	nc := natstest.Connect(t, s)
	log, other := openOn(t, nc, jetlog.Config{GateDir: s.GateDir()}), natstest.LogOn(t, s, 1)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	n := 0
	for range 5 {
		require.NoError(t, nc.ForceReconnect())
		for range 20 {
			logtest.Add(t, other, "s", fmt.Sprint(n), "x")
			n++
		}
	}
	followed(t, tail, n)
	begins := openTail(t, log, uint64(n), jetlog.TailOptions{})
	nc.Close()
	for _, tail := range []*jetlog.Tail{tail, begins} {
		must.Fail(tail.Next(deadline(t, hang.Limit)))(t, jetlog.ErrUnavailable)
	}
}

func TestClosedTailGivesNothing(t *testing.T) {
	t.Parallel()
	log, stream, _ := logtest.Gated(t)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	waiting := make(chan error, 1)
	go func() {
		_, err := tail.Next(t.Context())
		waiting <- err
	}()
	tail.Close()
	require.ErrorIs(t, <-waiting, jetlog.ErrClosed)
	tail.Close()
	must.Fail(tail.Next(t.Context()))(t, jetlog.ErrClosed)
	hang.Until(t, func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Consumers == 0
	}, "its consumer stays behind")
}

// TestStreamMadeAnewEndsTheTail also where the new stream is longer than the old
// one was: a consumer of the old sequence would then skip what is before.
func TestStreamMadeAnewEndsTheTail(t *testing.T) {
	t.Parallel()
	for _, longer := range []bool{false, true} {
		t.Run(fmt.Sprint("longer ", longer), func(t *testing.T) {
			t.Parallel()
			s := natstest.Server(t)
			log := natstest.LogOn(t, s, 1)
			js := natstest.JetStream(t, natstest.Connect(t, s))
			tail := openTail(t, log, 0, jetlog.TailOptions{})
			for i := range 3 {
				logtest.Add(t, log, "s", fmt.Sprint(i), "x")
			}
			followed(t, tail, 3)
			require.NoError(t, js.DeleteStream(t.Context(), events.StreamName(0)))
			var anew *jetlog.Log
			again(t, func() (err error) {
				anew, err = jetlog.Open(t.Context(), natstest.Connect(t, s), jetlog.Config{GateDir: s.GateDir()})
				return err
			})
			if longer {
				for i := range 6 {
					logtest.Add(t, anew, "s", fmt.Sprint(i), "x")
				}
			}
			must.Fail(tail.Next(deadline(t, hang.Limit)))(t, jetlog.ErrStream)
			must.Fail(log.Tail(t.Context(), 0, 0, jetlog.TailOptions{}))(t, jetlog.ErrStream)
			hang.Until(t, func() bool {
				_, err := log.Head(t.Context(), 0)
				return err != nil
			})
			must.Fail(log.Head(t.Context(), 0))(t, jetlog.ErrStream)
		})
	}
}

// TestSlowReaderHoldsNothingUp lets far more come than a tail keeps, in number and
// in bytes, before it reads.
func TestSlowReaderHoldsNothingUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ events, size, batch int }{
		"many": {2500, 10, 20}, "large": {6, 7 << 20, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Server(t)
			log, nc := natstest.LogOn(t, s, 1), natstest.Connect(t, s)
			tail := openTail(t, log, 0, jetlog.TailOptions{MaxBatch: c.batch, Ungated: true})
			body := make([]byte, c.size)
			for range c.events {
				require.NoError(t, nc.Publish(events.SessionSubject("s"), body))
			}
			hang.Until(t, func() bool {
				head, err := log.Head(t.Context(), 0)
				return err == nil && head.Seq == uint64(c.events)
			})
			followed(t, tail, c.events)
		})
	}
}

func TestSessionGivesItsRange(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	var want []uint64
	for i := range 1200 { // more than a page
		session := "s"
		if i%2 == 1 {
			session = "other"
		}
		if at := logtest.Add(t, log, session, fmt.Sprint(i), "x"); session == "s" {
			want = append(want, at.Seq)
		}
	}
	seqs := func(after, upTo uint64) (out []uint64) {
		for e, err := range log.Session(t.Context(), "s", after, upTo) {
			require.NoError(t, err)
			out = append(out, e.Position.Seq)
		}
		return out
	}
	require.Equal(t, want, seqs(0, math.MaxUint64))
	require.Equal(t, want, seqs(0, 1200))
	require.Equal(t, want[:550], seqs(0, want[549]))
	require.Equal(t, want[:550], seqs(0, want[549]+1))
	require.Equal(t, want[10:20], seqs(want[9], want[19]))
	require.Empty(t, seqs(5, 5))
	require.Empty(t, seqs(9, 5))
	require.Empty(t, seqs(math.MaxUint64, math.MaxUint64))
	for _, err := range log.Session(t.Context(), "s", 0, math.MaxUint64) {
		require.NoError(t, err)
		break // a reader may stop
	}
	last := must.Get(log.Last(t.Context(), "s"))(t)
	require.Equal(t, want[len(want)-1], last)
}

func TestHeadSeesWhatOthersPublish(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log, other := natstest.LogOn(t, s, 1), natstest.LogOn(t, s, 1)
	for i := range 60 {
		writer := log
		if i%3 > 0 {
			writer = other
		}
		at := logtest.Add(t, writer, "s", fmt.Sprint(i), "x")
		require.Equal(t, at.Seq, logtest.Head(t, log, 0))
	}
}

func TestSequenceAtATime(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	times := []time.Time{time.Now().Add(-time.Hour)}
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	for i := range 5 {
		logtest.Add(t, log, "s", fmt.Sprint(i), "x")
		times = append(times, next(t, tail)[0].Time)
	}
	for i, at := range append(times, times[5].Add(time.Second)) {
		seq := must.Get(log.SeqAt(t.Context(), 0, at))(t)
		require.EqualValues(t, max(0, i-1), seq)
	}
}

// A link and the turn that came with it are one append: no batch ends between them, however small it is to be, and
// however the server sends them.
func TestATailCutsNoAppend(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	const turns = 200
	writing, ctx := errgroup.WithContext(t.Context())
	for w := range 8 {
		writing.Go(func() error {
			for i := range turns / 8 {
				session := fmt.Sprint("s", w, "-", i)
				turn := turntest.Recorded(session, "r", "text", "text")
				if _, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{link(session), turn}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, most := range []int{1, 3, 1000} {
		tail := openTail(t, log, 0, jetlog.TailOptions{MaxBatch: most, Ungated: most == 3})
		for n, open := 0, false; n < 2*turns; {
			batch, err := tail.Next(ctx) // ends with a writer that fails
			require.NoError(t, err)
			require.LessOrEqual(t, len(batch), most+1)
			for i, m := range batch {
				open = m.Type() == events.TypeSessionLinked
				require.Equal(t, open, m.Continues, "%d of %d: %s", i, len(batch), m.Type())
			}
			require.False(t, open, "the batch ends with %s", batch[len(batch)-1].Type())
			n += len(batch)
		}
	}
	require.NoError(t, writing.Wait())
}

// The beginning of another session in the same append completes nothing.
func TestAnAppendToTwoSessionsIsTwoChanges(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	must.Get(log.Append(t.Context(), jetlog.Append{BeginsOthers: true, Facts: []events.Fact{
		link("a"), logtest.Fact("a", "r"), link("b"), logtest.Fact("b", "r")}}))(t)
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	var continues []bool
	for len(continues) < 4 {
		for _, m := range next(t, tail) {
			continues = append(continues, m.Continues)
		}
	}
	require.Equal(t, []bool{true, false, true, false}, continues)
}

// A link whose turn has left the log is not held back for ever.
func TestATailGivesUpOnAHalfAppend(t *testing.T) {
	t.Parallel()
	log, stream, _ := logtest.Gated(t)
	ack := logtest.Append(t, log, link("s"), turntest.Recorded("s", "r", "text", "text"))
	require.NoError(t, stream.SecureDeleteMsg(t.Context(), ack.Position.Seq))
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	batch := next(t, tail)
	require.Len(t, batch, 1)
	require.False(t, batch[0].Continues)
	logtest.Add(t, log, "other", "r", "text")
	require.EqualValues(t, 3, next(t, tail)[0].Position.Seq)
}

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
		start := turntest.Started("s", string(rune('a'+i)), text)
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
