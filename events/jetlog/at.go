package jetlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// At returns the durable event at a position, and reports whether there is one. An erased event counts as missing.
func (l *Log) At(ctx context.Context, at events.Position) (events.Recorded, bool, error) {
	p, err := l.partition(at.Partition)
	if err != nil || at.Seq == 0 {
		return events.Recorded{}, false, err
	}
	if !p.shared.Load() && !p.mirrored.Load() { // the only server gives it directly, for less
		if found, err := l.Some(ctx, at.Partition, []uint64{at.Seq}); err != nil || len(found) > 0 {
			return append(found, events.Recorded{})[0], err == nil, err
		}
	}
	m, err := l.surely(ctx, p, map[string]any{"seq": at.Seq}, at.Seq, at.Seq)
	if err != nil || m == nil {
		return events.Recorded{}, false, err
	}
	if err := p.gate.Wait(ctx, await.Mark(m.Seq)); err != nil {
		return events.Recorded{}, false, err
	}
	return m.Recorded(p.number), true, nil
}

// After returns the sequence of the partition's first event after a sequence, and reports whether there is such an
// event yet. It skips the sequences of erased events.
func (l *Log) After(ctx context.Context, partition int, seq uint64) (uint64, bool, error) {
	p, err := l.partition(partition)
	if err != nil {
		return 0, false, err
	}
	m, err := l.next(ctx, p, seq+1)
	if err != nil || m == nil {
		return 0, false, err
	}
	return m.Seq, true, nil
}

// Still reports whether a partition has no event between two sequences, including the second, and never will: it has
// gone past the second. If so, a caller that waits for events up to that sequence can stop waiting. It asks whether the
// stream is still the one that this process has read, since another one lacks events that were not erased.
func (l *Log) Still(ctx context.Context, partition int, after, upTo uint64) (bool, error) {
	p, err := l.partition(partition)
	if err != nil {
		return false, err
	}
	// The head is asked for first: an event that comes after the question for the next one is not passed over.
	reached, err := l.reaches(ctx, p, upTo)
	if err != nil {
		return false, err
	}
	next, found, err := l.After(ctx, partition, after)
	if err != nil || found && next <= upTo {
		return false, err
	}
	err = l.same(ctx, p)
	return reached && err == nil, err
}

// next returns the partition's first event at or after a sequence, or nil if there is none.
func (l *Log) next(ctx context.Context, p *partition, from uint64) (*wire.Stored, error) {
	return l.surely(ctx, p, map[string]any{"seq": from, "next_by_subj": ">"}, from, math.MaxUint64)
}

// surely asks the leader for a message between two sequences. It returns nil only if the stream's index has no event
// there either, since the server answers every failure of its store as if there was no event.
func (l *Log) surely(
	ctx context.Context, p *partition, request map[string]any, from, upTo uint64,
) (*wire.Stored, error) {
	for range doubts {
		m, err := l.message(ctx, p, request)
		if err != nil || m != nil {
			return m, err
		}
		if some, err := l.indexed(ctx, p, from, upTo); err != nil || !some {
			return nil, err
		}
	}
	return nil, p.withheld()
}

// indexed reports whether the stream's index has an event between two sequences, both included.
func (l *Log) indexed(ctx context.Context, p *partition, from, upTo uint64) (bool, error) {
	seen := p.seen.Load() // a leader that knows less proves nothing
	info, err := l.reaching(ctx, p, nil, seen)
	if err != nil {
		return false, err
	}
	s := &info.State
	if upTo < s.FirstSeq || from > s.LastSeq || s.Msgs == 0 {
		return false, nil
	}
	// The list of erased events may be long, so it is requested only if an event was erased.
	if s.LastSeq-s.FirstSeq+1 != s.Msgs {
		if info, err = l.reaching(ctx, p, map[string]any{"deleted_details": true}, seen); err != nil {
			return false, err
		}
	}
	from, upTo = max(from, s.FirstSeq), min(upTo, s.LastSeq)
	left := upTo - from + 1
	for _, seq := range s.Deleted {
		if from <= seq && seq <= upTo {
			left--
		}
	}
	return left > 0, nil
}

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
	first, _, err := direct(ctx, l.wire, p, request, math.MaxUint64, 1)
	if err != nil && !errors.Is(err, errUnreadable) && !errors.Is(err, errMirror) {
		return 0, Unavailable("position at a time", err)
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
