package jetlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// SeqAt returns the sequence before the first event that was recorded at or after a time: a tail after it delivers the
// events since that time. Without such an event SeqAt returns the head.
func (l *Log) SeqAt(ctx context.Context, partition int, since time.Time) (uint64, error) {
	p, err := l.partition(partition)
	if err != nil {
		return 0, err
	}
	// The head is asked for first, so that a tail after it delivers events that come in between.
	head, err := l.head(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("position at a time: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	request := map[string]any{"start_time": since, "next_by_subj": ">", "batch": 1}
	first, _, err := l.direct(ctx, p, request, math.MaxUint64, 1)
	if err != nil && !errors.Is(err, errUnreadable) && !errors.Is(err, errMirror) {
		return 0, fmt.Errorf("position at a time: %w: %w", ErrUnavailable, err)
	}
	before := head
	if len(first) > 0 {
		before = first[0].Position.Seq - 1
	}
	// The server passes over what it can't read (nats-server 2.15, fileStore.GetSeqFromTime), and a mirror may be
	// behind. So the answer counts only if the event before it is older.
	m, older := l.message(ctx, p, map[string]any{"seq": max(before, 1)})
	if err == nil && older == nil && m != nil && m.Time.Before(since) {
		return before, nil
	}
	return l.seqByHalves(ctx, p, since, head)
}

// seqByHalves searches the log for the time by bisection, where the server's answer does not count. Times rise with the
// sequences.
func (l *Log) seqByHalves(ctx context.Context, p *partition, since time.Time, head uint64) (uint64, error) {
	low, high := uint64(1), head+1
	for low < high {
		mid := low + (high-low)/2
		m, err := l.next(ctx, p, mid)
		switch {
		case err != nil:
			return 0, fmt.Errorf("position at a time: %w", err)
		case m == nil || m.Seq > head || !m.Time.Before(since):
			high = mid
		default:
			low = m.Seq + 1
		}
	}
	return low - 1, nil
}
