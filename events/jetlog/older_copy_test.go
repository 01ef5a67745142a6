package jetlog_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
)

// TestAStreamPutBackThatHasGrownSinceIsNoticed puts the disk of a server back as it was some events ago, and lets
// the stream grow longer than it had been before those hear of it who had followed it: a tail, which would go on
// behind what it never saw, and one who only asks for the head, and would take a view of the former events for one
// of these.
func TestAStreamPutBackThatHasGrownSinceIsNoticed(t *testing.T) {
	t.Parallel()
	d := natstest.NewDisk(t)
	write := func(what string, n int) func(*nats.Conn, *jetlog.Log) {
		return func(_ *nats.Conn, log *jetlog.Log) {
			for i := range n {
				logtest.Add(t, log, "s", fmt.Sprint(what, i), "x")
			}
		}
	}
	d.Apart(write("kept", 3))
	d.Copy()
	var follows, asks, idle *jetlog.Log
	var tails []*jetlog.Tail
	d.Serve(func(nc *nats.Conn, log *jetlog.Log) {
		write("lost", 3)(nc, log)
		follows, asks, idle = d.Outside(), d.Outside(), d.Outside()
		tails = []*jetlog.Tail{openTail(t, follows, 0, jetlog.TailOptions{}),
			openTail(t, d.Outside(), 0, jetlog.TailOptions{HeadersOnly: true})}
		for _, tail := range tails {
			followed(t, tail, 6)
		}
		must.Get(asks.Head(t.Context(), 0))(t)
	})
	d.PutBack()
	d.Apart(write("new", 5))
	d.Serve(func(*nats.Conn, *jetlog.Log) {
		for _, tail := range tails {
			must.Fail(tail.Next(deadline(t, hang.Limit)))(t, jetlog.ErrStream)
		}
		for name, log := range map[string]*jetlog.Log{"the tail's": follows, "asked before": asks,
			"never asked": idle} {
			hang.Until(t, func() bool {
				_, err := log.Head(t.Context(), 0) // which looks once a second
				return errors.Is(err, jetlog.ErrStream)
			}, name)
		}
	})
}

// TestAReadOfAStreamPutBackIsRefused is the same for who reads before anybody looks at the stream: a session that goes
// on otherwise, one that the stream lacks now, what is left behind a position, or a tail that is behind. The events
// that were lost may be large, and the stream may be shorter now.
func TestAReadOfAStreamPutBackIsRefused(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ size, since int }{
		"small": {1, 5}, "large": {100 << 10, 5}, "shorter now": {1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := natstest.NewDisk(t)
			d.Apart(func(_ *nats.Conn, log *jetlog.Log) { logtest.Add(t, log, "s", "kept", "x") })
			d.Copy()
			var follows, asks *jetlog.Log
			d.Serve(func(_ *nats.Conn, log *jetlog.Log) {
				follows = d.Outside()
				for _, session := range []string{"s", "gone"} {
					logtest.Add(t, log, session, "lost", strings.Repeat("x", of.size))
				}
				followed(t, openTail(t, follows, 0, jetlog.TailOptions{}), 3)
				asks = d.Outside() // it has seen the newest event alone
			})
			d.PutBack()
			d.Apart(func(_ *nats.Conn, log *jetlog.Log) {
				for i := range of.since {
					logtest.Add(t, log, "s", fmt.Sprint("new", i), "x")
				}
			})
			d.Serve(func(*nats.Conn, *jetlog.Log) {
				for _, log := range []*jetlog.Log{follows, asks} {
					refusesToRead(t, log)
				}
			})
		})
	}
}

// refusesToRead expects each way to read a log to fail with ErrStream. Its connection may still be about to come back.
func refusesToRead(t *testing.T, log *jetlog.Log) {
	t.Helper()
	session := func(id string) func() error {
		return func() (err error) {
			for _, err = range log.Session(t.Context(), id, 0, math.MaxUint64) {
			}
			return err
		}
	}
	for what, read := range map[string]func() error{
		"a session that goes on": session("s"), "a session that is gone": session("gone"),
		"what is left": func() error {
			_, err := log.Still(t.Context(), 0, 100, 200)
			return err
		},
		"a tail": func() error {
			tail, err := log.Tail(t.Context(), 0, 1, jetlog.TailOptions{})
			if err == nil {
				tail.Close()
			}
			return err
		},
	} {
		err := read()
		for began := time.Now(); err != nil && !errors.Is(err, jetlog.ErrStream); err = read() {
			require.Less(t, time.Since(began), 20*time.Second, "%s: %v", what, err)
		}
		require.ErrorIs(t, err, jetlog.ErrStream, what)
	}
}
