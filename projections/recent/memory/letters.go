package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

var _ recent.Restorable = (*View)(nil)

// deadLetters is how many dead letters are kept; older ones go.
const deadLetters = 1000

// Park keeps a dead letter in the served generation.
func (v *View) Park(ctx context.Context, b projections.Batch, reason string) error {
	return v.served.Load().Park(ctx, b, reason)
}

// Park keeps a dead letter of the generation. The view can't say what the event would have changed,
// so it no longer answers for the session: until its next event it holds none of
// it, and then only what came after.
func (v *generation) Park(ctx context.Context, b projections.Batch, reason string) error {
	p, err := v.partition(ctx, b.From.Partition)
	if err == nil {
		err = p.commit(b, func() { v.parkAll(p, b.Events, reason) })
	}
	if err != nil {
		return fmt.Errorf("park after %s in memory: %w", b.From.Position(), err)
	}
	return nil
}

func (v *generation) parkAll(p *partition, parked []projections.Judged, reason string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range parked {
		e := &parked[i]
		p.shard(v.hash(e.SessionID)).forget(e.SessionID)
		v.dead = append(v.dead, projections.NewDeadLetter(name, e, reason, v.now()))
	}
	if n := len(v.dead) - deadLetters; n > 0 {
		v.dead = append([]projections.DeadLetter(nil), v.dead[n:]...)
	}
}

// DeadLetters gives the last dead letters, oldest first.
func (v *View) DeadLetters(context.Context) ([]projections.DeadLetter, error) {
	g := v.served.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.dead), nil
}

// DropDeadLetter is described at projections.DeadLetterQueue.
func (v *View) DropDeadLetter(ctx context.Context, at events.Position, d projections.Drop) (projections.DeadLetter, error) {
	return v.served.Load().DropDeadLetter(ctx, at, d)
}

// DropDeadLetter is described at projections.Generation.
func (v *generation) DropDeadLetter(_ context.Context, at events.Position, d projections.Drop) (projections.DeadLetter, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.dead {
		if v.dead[i].Position == at {
			v.dead[i].Dropped = &d
			return v.dead[i], nil
		}
	}
	return projections.DeadLetter{}, projections.ErrNoDeadLetter
}

// Restore is described at recent.Restorable.
func (v *View) Restore(ctx context.Context, partition int, folded *conversation.State, upTo uint64) (bool, error) {
	return v.served.Load().restore(ctx, partition, folded, upTo)
}

func (v *generation) restore(ctx context.Context, partition int, folded *conversation.State, upTo uint64) (bool, error) {
	p, err := v.partition(ctx, partition)
	if err != nil {
		return false, fmt.Errorf("restore a session in memory: %w", err)
	}
	own := func(l projections.DeadLetter) bool {
		return l.SessionID == folded.SessionID && l.Position.Partition == partition
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s := p.shard(v.hash(folded.SessionID))
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.sessions[folded.SessionID]
	later := slices.ContainsFunc(v.dead, func(l projections.DeadLetter) bool { return own(l) && l.Position.Seq > upTo })
	if p.applied.Load() < upTo || later || held != nil && held.Applied > upTo {
		return false, nil
	}
	v.dead = slices.DeleteFunc(v.dead, own)
	if held != nil {
		s.drop(held)
	}
	if expires := v.limits.Expires(folded.Head()).UnixMilli(); expires >= v.now().UnixMilli() {
		v.take(s, folded, expires)
	}
	return true, nil
}

// take holds a folded session.
func (v *generation) take(s *shard, folded *conversation.State, expires int64) {
	v.limits.Trim(folded)
	var previous *conversation.Turn
	for _, t := range folded.Turns {
		trimQuestion(t, previous)
		if t.Answer != nil {
			trimAnswer(t, previous)
		}
		previous = t
	}
	held := s.add(folded.SessionID, v.rules)
	held.State = *folded
	s.date(held, expires)
}
