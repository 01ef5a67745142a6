package effects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

var _ desk.Source = (*Effect)(nil)

// Served implements desk.Source.
func (e *Effect) Served(ctx context.Context) (out projections.Served, err error) {
	for k := range e.cfg.Log.Partitions() {
		cp, _, err := e.stored(ctx, k)
		if err != nil {
			return out, err
		}
		out.At = append(out.At, cp)
	}
	return out, nil
}

// Restore implements desk.Source: the event is handled again, with the verdict that it had. There is nothing
// to be done any more for one that was erased, or whose turn has been redacted or replaced since.
func (e *Effect) Restore(ctx context.Context, s projections.Session) ([]events.Position, error) {
	recorded, found, err := e.cfg.Log.At(ctx, s.Letter)
	if err != nil {
		return nil, err
	}
	if found {
		if err := e.again(ctx, recorded); err != nil {
			return nil, projections.Permanent(err)
		}
	}
	return []events.Position{s.Letter}, nil
}

// Carry hands over the dead letters of a partition that a version before kept in the bucket, and forgets those
// that were kept.
func (e *Effect) Carry(ctx context.Context, partition int, keep projections.Keep) error {
	bucket, err := e.open(ctx)
	if err != nil {
		return err
	}
	keys, err := bucket.ListKeysFiltered(ctx, "letter."+strconv.Itoa(partition)+".*")
	if err != nil {
		return fmt.Errorf("carry over the dead letters: %w", err)
	}
	defer func() { _ = keys.Stop() }()
	for key := range keys.Keys() {
		if err := carry(ctx, bucket, key, keep); err != nil {
			return fmt.Errorf("carry over the dead letters: %w", err)
		}
	}
	return nil
}

func carry(ctx context.Context, bucket jetstream.KeyValue, key string, keep projections.Keep) error {
	var dead projections.DeadLetter
	entry, err := bucket.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(entry.Value(), &dead)
	}
	if err == nil {
		err = keep(ctx, dead)
	}
	if err == nil {
		err = bucket.Purge(ctx, key)
	}
	return err
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
func (e *Effect) since(
	ctx context.Context, judged projections.Judged,
) (later []projections.Judged, gone bool, err error) {
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
