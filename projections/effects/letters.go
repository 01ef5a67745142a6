package effects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

var _ projections.DeadLetterQueue = (*Effect)(nil)

func letterKey(at events.Position) string { return fmt.Sprintf("letter.%d.%d", at.Partition, at.Seq) }

func (e *Effect) keep(ctx context.Context, letter projections.DeadLetter) error {
	raw, err := json.Marshal(letter)
	if err != nil {
		return fmt.Errorf("keep a dead letter: %w", err)
	}
	bucket, err := e.open(ctx)
	if err != nil {
		return err
	}
	if _, err := bucket.Put(ctx, letterKey(letter.Position), raw); err != nil {
		return fmt.Errorf("keep a dead letter: %w", err)
	}
	return nil
}

// DeadLetters implements projections.DeadLetterQueue.
func (e *Effect) DeadLetters(ctx context.Context) ([]projections.DeadLetter, error) {
	bucket, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := list(ctx, bucket, "letter.>")
	if err != nil {
		return nil, err
	}
	var out []projections.DeadLetter
	for _, entry := range entries {
		var letter projections.DeadLetter
		if err := json.Unmarshal(entry.Value(), &letter); err != nil {
			return nil, fmt.Errorf("read a dead letter: %w", err)
		}
		out = append(out, letter)
	}
	slices.SortFunc(out, func(a, b projections.DeadLetter) int {
		return cmp.Or(cmp.Compare(a.Position.Partition, b.Position.Partition), cmp.Compare(a.Position.Seq, b.Position.Seq))
	})
	return out[:min(len(out), projections.MaxDeadLetters)], nil
}

func (e *Effect) letter(ctx context.Context, at events.Position) (letter projections.DeadLetter, err error) {
	bucket, err := e.open(ctx)
	if err != nil {
		return letter, err
	}
	entry, err := bucket.Get(ctx, letterKey(at))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return letter, projections.ErrNoDeadLetter
	}
	if err == nil {
		err = json.Unmarshal(entry.Value(), &letter)
	}
	if err != nil {
		return letter, fmt.Errorf("read a dead letter: %w", err)
	}
	return letter, nil
}

// RetryDeadLetter implements projections.DeadLetterQueue: the event is handled again,
// with the verdict that it had. There is nothing to be done any more for one that was
// erased, or whose turn has been redacted or replaced since.
func (e *Effect) RetryDeadLetter(ctx context.Context, at events.Position) (projections.Retried, error) {
	letter, err := e.letter(ctx, at)
	if err != nil {
		return projections.Retried{}, err
	}
	recorded, found, err := e.cfg.Log.At(ctx, at)
	if err != nil {
		return projections.Retried{}, err
	}
	if found {
		if err := e.again(ctx, recorded); err != nil {
			letter.Attempts++
			letter.Reason = projections.BoundReason(err.Error())
			return projections.Retried{DeadLetter: letter}, e.keep(ctx, letter)
		}
	}
	bucket, err := e.open(ctx)
	if err != nil {
		return projections.Retried{}, err
	}
	return projections.Retried{DeadLetter: letter, Applied: true}, bucket.Purge(ctx, letterKey(at))
}

// DropDeadLetter implements projections.DeadLetterQueue.
func (e *Effect) DropDeadLetter(ctx context.Context, at events.Position, d projections.Drop) (projections.DeadLetter, error) {
	letter, err := e.letter(ctx, at)
	if err != nil {
		return letter, err
	}
	letter.Dropped = &d
	return letter, e.keep(ctx, letter)
}

// again handles an event, and where its turn went away meanwhile also what came after
// it, so that nothing stays behind.
func (e *Effect) again(ctx context.Context, recorded events.Recorded) error {
	judge := projections.NewJudge(e.cfg.Log, e.cfg.Rules, recorded.Position.Seq-1)
	judged, err := judge.Judge(ctx, recorded)
	if err != nil {
		return err
	}
	_, gone, err := e.since(ctx, judged)
	if err != nil || gone {
		return err
	}
	if err := e.Handle(ctx, []projections.Judged{judged}); err != nil {
		return err
	}
	later, gone, err := e.since(ctx, judged)
	if err != nil || !gone {
		return err
	}
	return e.Handle(ctx, later)
}

// since gives what came after an event in its session, and whether the event's turn is
// gone by it.
func (e *Effect) since(ctx context.Context, judged projections.Judged) (later []projections.Judged, gone bool, err error) {
	if judged.SessionID == "" {
		return nil, false, nil
	}
	judge := projections.NewJudge(e.cfg.Log, e.cfg.Rules, judged.Position.Seq)
	state := conversation.New(judged.SessionID, e.cfg.Rules)
	for r, err := range e.cfg.Log.Session(ctx, judged.SessionID, 0, math.MaxInt64) {
		if err != nil {
			return nil, false, err
		}
		state.Fold(r)
		if r.Position.Seq <= judged.Position.Seq {
			continue
		}
		j, err := judge.Judge(ctx, r)
		if err != nil {
			return nil, false, err
		}
		later = append(later, j)
	}
	if state.Erased != 0 {
		return later, true, nil
	}
	turn := judged.Change.Turn
	if turn == nil {
		return later, false, nil
	}
	now := state.Turn(turn.ID)
	return later, now == nil || now.Status == conversation.Redacted || now.Status == conversation.Replaced, nil
}
