package jetlog

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
)

const (
	// warmStep is half of JetStream's blocks of 8 MB, so that at least one request falls into each block.
	warmStep = 4 << 20
	// loadTime is longer than a request takes if the message's block is in memory, and shorter than the server takes to
	// read a block.
	loadTime = time.Millisecond
	// warmRest is how long the pause after a block's read is, in multiples of the read's duration.
	warmRest = 2
)

// Warm makes the server read the blocks that a session is spread over, one by one and with pauses, so that a read of
// the session just after finds them in memory. Without Warm, such a read loads one block after the other while it holds
// the stream's lock, and all writes wait (nats-server 2.15, fileStore.LoadNextMsg). The server reads a message that is
// requested by its sequence without the lock. Warm is a hint: a block that it misses costs time and nothing else.
func (l *Log) Warm(ctx context.Context, sessionID string) error {
	p := l.partitionOf(sessionID)
	request := map[string]any{"seq": 1, "next_by_subj": events.SessionSubject(sessionID), "no_hdr": true}
	first, err := l.message(ctx, p, request)
	if err != nil || first == nil {
		return err
	}
	last, err := l.Last(ctx, sessionID)
	if err != nil {
		return err
	}
	step, err := l.warmStep(ctx, p)
	if err != nil {
		return err
	}
	for seq := first.Seq + step; seq < last; seq += step {
		began := time.Now()
		if _, err := l.message(ctx, p, map[string]any{"seq": seq, "no_hdr": true}); err != nil {
			return err
		}
		if took := time.Since(began); took > loadTime {
			pause.For(ctx, warmRest*took)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// warmStep returns how many sequences take warmStep bytes.
func (l *Log) warmStep(ctx context.Context, p *partition) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	stream, err := l.wire.JS.Stream(ctx, p.name)
	if err != nil {
		return 0, Unavailable("", err)
	}
	s := stream.CachedInfo().State
	return 1 + (s.LastSeq-s.FirstSeq)*warmStep/max(s.Bytes, 1), nil
}

// Slowly reads sessions for work in the background. A server stores nothing while it answers a read. So the only server
// of a log is asked for one event at a time, and its writers wait for no more.
type Slowly struct{ *Log }

// Session returns the same as Log.Session.
func (l Slowly) Session(
	ctx context.Context, sessionID string, after, upTo uint64,
) iter.Seq2[events.Recorded, error] {
	return l.subject(ctx, l.partitionOf(sessionID), events.SessionSubject(sessionID), after, upTo, steps)
}

// pace is how much a read asks for at once.
type pace int

const (
	pages pace = iota
	steps
)

// step reads the next event, with one question. That there is none is no proof.
func (r *sessionRead) step(ctx context.Context) (e events.Recorded, found bool) {
	ctx, cancel := context.WithTimeout(ctx, replicaDeadline)
	defer cancel()
	next := []string{fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, r.after+1, r.subject)}
	err := r.log.each(ctx, r.p, next, func(m *nats.Msg) (err error) {
		e, err = r.p.fromDirect(m)
		found = err == nil
		return err
	})
	return e, found && err == nil
}
