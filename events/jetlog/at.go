package jetlog

import (
	"context"
	"math"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// At returns the durable event at a position, and reports whether there is an event: an erased event is none.
func (l *Log) At(ctx context.Context, at events.Position) (events.Recorded, bool, error) {
	p, err := l.partition(at.Partition)
	if err != nil || at.Seq == 0 {
		return events.Recorded{}, false, err
	}
	m, err := l.surely(ctx, p, map[string]any{"seq": at.Seq}, at.Seq, at.Seq)
	if err != nil || m == nil {
		return events.Recorded{}, false, err
	}
	if err := p.gate.Wait(ctx, at.Seq); err != nil {
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

// Still reports whether a partition has no event between two sequences, the second included. A caller that waits for
// events up to there need not wait any longer.
func (l *Log) Still(ctx context.Context, partition int, after, upTo uint64) (bool, error) {
	next, found, err := l.After(ctx, partition, after)
	return err == nil && (!found || next > upTo), err
}

// next returns the partition's first event from a sequence on, nil where there is none.
func (l *Log) next(ctx context.Context, p *partition, from uint64) (*wire.Stored, error) {
	return l.surely(ctx, p, map[string]any{"seq": from, "next_by_subj": ">"}, from, math.MaxUint64)
}

// surely asks the leader for a message between two sequences, and returns nil only if the stream's index has no event
// there: the server answers every failure of its store as if there was no event.
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
	info, err := l.heard(ctx, p, nil)
	if err != nil {
		return false, err
	}
	s := &info.State
	if upTo < s.FirstSeq || from > s.LastSeq || s.Msgs == 0 {
		return false, nil
	}
	// Only where an event was erased is the list of all erased events asked for, which may be long.
	if s.LastSeq-s.FirstSeq+1 != s.Msgs {
		if info, err = l.heard(ctx, p, map[string]any{"deleted_details": true}); err != nil {
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
