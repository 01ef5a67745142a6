package follower

import (
	"context"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

// tailSource reads the log by a tail of its own.
type tailSource struct {
	log       jetlog.Tailer
	partition int
	after     uint64
	opts      jetlog.TailOptions
	// patient: it waits for events as long as it takes.
	patient bool
	tail    *jetlog.Tail
}

// next implements source. Once the tail is open, it waits no longer than stillFor for events. After an error it opens
// another tail.
func (s *tailSource) next(ctx context.Context) ([]jetlog.Message, uint64, error) {
	if s.tail == nil {
		tail, err := s.log.Tail(ctx, s.partition, s.after, s.opts)
		if err != nil {
			return nil, s.after, err
		}
		s.tail = tail
	}
	wait := stillFor
	if s.patient {
		wait = math.MaxInt64
	}
	var batch []jetlog.Message
	late, err := pause.Within(ctx, wait, func(ctx context.Context) (err error) {
		batch, err = s.tail.Next(ctx)
		return err
	})
	switch {
	case late:
		return nil, s.after, nil
	case ctx.Err() != nil && err != nil:
		return nil, s.after, err
	case err != nil:
		s.close()
		return nil, s.after, err
	}
	s.after = batch[len(batch)-1].Position.Seq
	return batch, s.after, nil
}

func (s *tailSource) close() {
	if s.tail != nil {
		s.tail.Close()
	}
	s.tail = nil
}

// judgeSource judges what a reader brings.
type judgeSource struct {
	raw    source[jetlog.Message]
	budget *budget
	loads  *loads
	// most bounds what is judged before any of it is shown.
	most int
	// unjudged is what the reader has brought and is not judged yet. The source is at a sequence, and the reader at to.
	unjudged []jetlog.Message
	at, to   uint64

	mu    sync.Mutex
	judge *projections.Judge
	bytes atomic.Int64
}

// next implements source. After an error it goes on with the event that could not be judged.
func (s *judgeSource) next(ctx context.Context) ([]projections.Judged, uint64, error) {
	if len(s.unjudged) == 0 {
		var err error
		if s.unjudged, s.to, err = s.raw.next(ctx); len(s.unjudged) == 0 {
			s.at = s.to
			return nil, s.at, err
		}
	}
	out, err := s.judgeAll(ctx, s.unjudged[:cut(s.unjudged, s.most, messageContinues)])
	if s.unjudged = s.unjudged[len(out):]; len(s.unjudged) == 0 {
		s.at = s.to
	}
	s.budget.enforce()
	return out, s.at, err
}

// judgeAll judges events up to the first that can't be judged, and returns an error only if that is the first of all:
// the next call meets it again.
func (s *judgeSource) judgeAll(ctx context.Context, batch []jetlog.Message) ([]projections.Judged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.weigh()
	err := s.judge.Load(ctx, decoded(batch), s.loads.run)
	if err != nil {
		return nil, err
	}
	out := make([]projections.Judged, 0, len(batch))
	for i := range batch {
		j, err := s.judge.Judge(ctx, *batch[i].Decoded())
		if err != nil && i == 0 {
			return nil, err
		}
		if err != nil {
			break
		}
		j.Continues = batch[i].Continues
		out = append(out, j)
		s.at = j.Position.Seq
	}
	return out, nil
}

func decoded(batch []jetlog.Message) iter.Seq[*events.Recorded] {
	return func(yield func(*events.Recorded) bool) {
		for i := range batch {
			if !yield(batch[i].Decoded()) {
				return
			}
		}
	}
}

// weigh brings the budget to what the judge holds now.
func (s *judgeSource) weigh() {
	now := int64(s.judge.Bytes())
	s.budget.grow(int(now - s.bytes.Swap(now)))
}

// size implements holder.
func (s *judgeSource) size() int64 { return s.bytes.Load() }

// shedAtOnce is what a judge lets go at least.
const shedAtOnce = 64 << 10

// shed implements holder. It does not wait for a judge that reads a session.
func (s *judgeSource) shed() bool {
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	defer s.weigh()
	return s.judge.Shed(shedAtOnce) > 0
}

func (s *judgeSource) close() {
	s.raw.close()
	s.budget.remove(s)
	s.budget.grow(-int(s.bytes.Swap(0)))
}

// cut returns how many events to take where at most so many are wanted: one more if a link would be cut from its turn.
func cut[E any](from []E, most int, continues func(*E) bool) int {
	n := min(len(from), most)
	if n > 0 && n < len(from) && continues(&from[n-1]) {
		n++
	}
	return n
}

func messageContinues(m *jetlog.Message) bool { return m.Continues }

func judgedContinues(j *projections.Judged) bool { return j.Continues }

func seqOfMessage(m *jetlog.Message) uint64 { return m.Position.Seq }

func seqOfJudged(j *projections.Judged) uint64 { return j.Position.Seq }

func at(partition int, seq uint64) events.Position {
	return events.Position{Partition: partition, Seq: seq}
}

// weightOf estimates the bytes of judged events, which may be all that still holds what the log had of them.
func weightOf(batch []projections.Judged) (n int) {
	for i := range batch {
		n += batch[i].Size()
	}
	return n
}
