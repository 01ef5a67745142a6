package convoy_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/convoy"
)

// asked is a question that is answered by hand.
type asked struct{ answer chan uint64 }

func handBarrier() (*convoy.Barrier[uint64], <-chan asked) {
	questions := make(chan asked)
	return newBarrier(func(context.Context) (uint64, error) {
		q := asked{make(chan uint64)}
		questions <- q
		return <-q.answer, nil
	}), questions
}

func waitIn(t *testing.T, b *convoy.Barrier[uint64]) <-chan uint64 {
	got := make(chan uint64, 1)
	go func() {
		seq, err := b.Wait(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- seq
	}()
	return got
}

func TestQuestionThatBeganBeforeAReadDoesNotServeIt(t *testing.T) {
	t.Parallel()
	b, questions := handBarrier()
	first := waitIn(t, b)
	q1 := <-questions
	// What is asked now may be older than the reads that come now.
	const later = 8
	reads := make(chan uint64, later)
	for range later {
		go func() { reads <- <-waitIn(t, b) }()
	}
	q1.answer <- 1
	require.EqualValues(t, 1, <-first)
	asked := 0
	for n := uint64(2); len(reads) < later; n++ {
		select {
		case q := <-questions:
			asked++
			q.answer <- n
		case seq := <-reads:
			reads <- seq
			runtime.Gosched()
		}
	}
	for range later {
		require.GreaterOrEqual(t, <-reads, uint64(2))
	}
	require.LessOrEqual(t, asked, later)
}

func TestReadIsAtLeastAsNewAsWhatWasAcknowledgedBefore(t *testing.T) {
	t.Parallel()
	var stored, acked, questions atomic.Uint64
	b := newBarrier(func(context.Context) (uint64, error) {
		questions.Add(1)
		seq := stored.Load()
		for range 20 {
			runtime.Gosched()
		}
		return seq, nil
	})
	const reads = 2000
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			for range reads {
				before := acked.Load()
				seq, err := b.Wait(t.Context())
				if err != nil || seq < before {
					t.Errorf("got %d, %v after %d was acknowledged", seq, err, before)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { readers.Wait(); close(done) }()
	for n := uint64(1); ; n++ {
		select {
		case <-done:
			require.Less(t, questions.Load(), uint64(16*reads), "questions are shared")
			return
		default:
			stored.Store(n)
			acked.Store(n)
			runtime.Gosched()
		}
	}
}

func TestReadersGoOnWhenTheFirstGivesUp(t *testing.T) {
	t.Parallel()
	b, questions := handBarrier()
	ctx, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := b.Wait(ctx)
		first <- err
	}()
	q1 := <-questions
	giveUp()
	require.ErrorIs(t, <-first, context.Canceled)
	second := waitIn(t, b)
	q1.answer <- 1
	(<-questions).answer <- 2
	require.EqualValues(t, 2, <-second)
}

func TestQuestionThatFailedIsAskedAgainForTheNext(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fail := true
	b := newBarrier(func(context.Context) (uint64, error) {
		if fail {
			fail = false
			return 0, broken
		}
		return 7, nil
	})
	must.Fail(b.Wait(t.Context()))(t, broken)
	require.EqualValues(t, 7, must.Get(b.Wait(t.Context()))(t))
}

func newBarrier(ask func(context.Context) (uint64, error)) *convoy.Barrier[uint64] {
	return &convoy.Barrier[uint64]{Ask: ask}
}
