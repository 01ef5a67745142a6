package jetlog

import (
	"context"
	"fmt"
	"time"

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
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	s := stream.CachedInfo().State
	return 1 + (s.LastSeq-s.FirstSeq)*warmStep/max(s.Bytes, 1), nil
}
