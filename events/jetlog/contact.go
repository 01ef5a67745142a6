package jetlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events"
)

const (
	contactEvery = 500 * time.Millisecond
	// contactLost is how long all partitions may leave requests for their head unanswered before another server is
	// tried. It is longer than one request lasts.
	contactLost = readDeadline + contactEvery
)

// Connect connects to an outside NATS. The connection reconnects for ever, whatever ended it.
func Connect(url string, of ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(url, append([]nats.Option{
		nats.MaxReconnects(-1), nats.Name("turnledger"), nats.Timeout(5 * time.Second),
		// A server that is paused, or whose machine is gone, closes no connection: three
		// seconds of silence are enough to try the next one.
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectWait(250 * time.Millisecond),
		// Authorization errors are not final: an operator may set the old password again, or replace expired
		// credentials.
		nats.IgnoreAuthErrorAbort(),
	}, of...)...)
}

// Run keeps in touch with a cluster until ctx ends. If no partition answers with its head, Run moves the connection to
// another server: the present server may be cut off from the others, which NATS does not report to its clients. On a
// single server Run only looks for new mirrors.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(contactEvery)
	defer tick.Stop()
	mirrors := time.NewTicker(mirrorsEvery)
	defer mirrors.Stop()
	var asked time.Time // since when no request was answered; zero if one was
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-mirrors.C:
			l.lookForMirrors(ctx)
			continue
		case <-tick.C:
		}
		if asked.IsZero() {
			asked = time.Now()
		}
		switch {
		case !l.wire.NC.IsConnected(), len(l.wire.NC.Servers()) < 2, l.anyHead(ctx, asked.Add(contactLost)):
			asked = time.Time{}
		case time.Since(asked) >= contactLost && ctx.Err() == nil:
			_ = l.wire.NC.ForceReconnect() // fails only where the connection is closed
			asked = time.Time{}
		}
	}
}

// anyHead reports whether any partition in a cluster answers with its head in time. The first answer is enough: a
// partition whose leader is out of reach is silent for as long as a question lasts.
func (l *Log) anyHead(ctx context.Context, until time.Time) bool {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	answered := make(chan bool, len(l.partitions))
	for _, p := range l.partitions {
		if !p.shared.Load() {
			return true
		}
		all.Go(func() {
			_, err := p.barrier.Wait(ctx)
			answered <- err == nil
		})
	}
	for range l.partitions {
		if <-answered {
			return true
		}
	}
	return false
}

// mirrorsEvery is the pause between two looks for mirrors.
const mirrorsEvery = 10 * time.Second

// lookForMirrors notes which partitions are mirrored. If it can't find out, it assumes that all are. By default the
// server lets mirrors answer direct reads of the mirrored stream, and a mirror may be behind. So a read of a mirrored
// partition first asks the leader which events it must find.
func (l *Log) lookForMirrors(ctx context.Context) {
	mirrors, err := l.wire.Mirrors(ctx)
	for _, p := range l.partitions {
		p.mirrored.Store(err != nil || len(mirrors[p.name]) > 0)
	}
}

// Ready returns an *events.NotReady if the log takes no writes.
func (l *Log) Ready(ctx context.Context) error {
	if err := l.Writable(ctx); err != nil {
		if ctx.Err() != nil {
			return &events.NotReady{
				Reason: "the log's server does not tell whether it takes writes: does its disk hang?",
			}
		}
		return &events.NotReady{Reason: err.Error()}
	}
	for k := range l.partitions {
		if _, err := l.Head(ctx, k); err != nil {
			return &events.NotReady{Reason: l.silent(err), Err: err}
		}
	}
	return nil
}

// silent says why a partition did not answer with its head.
func (l *Log) silent(err error) string {
	refuses := func(how error) bool { return errors.Is(l.wire.NC.LastError(), how) }
	switch {
	case errors.Is(err, ErrStream):
		return "the log was restored, or made anew, by another process: " +
			"restart this one when turnledger restore has ended"
	case errors.Is(err, ErrNoWrites):
		return "an fsync failed: restart this process when its disk is well"
	case !l.wire.NC.IsConnected() && slices.ContainsFunc([]error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
	}, refuses):
		return "NATS does not let this process in: are TURNLEDGER_NATS_URL and its credentials right?"
	default:
		return "the log does not tell its head: NATS does not answer, or has no leader"
	}
}
