package write

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// maxRounds bounds how often a write decides. A write without rivals decides a few times: before it appends, after it
// has refreshed its state, and after its event is folded. Every other round follows an append that another event came
// before. So a write reaches the bound if very many writers write to its session at once, or if the log misbehaves.
const maxRounds = 32

// beginning appends the first event of a session that this process does not hold. It does not ask the log first whether
// the session exists: if it does, the log refuses the event, and the session is read then.
func (w *writing) beginning(ctx context.Context) (state, error) {
	if err := w.following(ctx); err != nil {
		return nil, err
	}
	x, mine := w.hold(w.id)
	if !mine {
		return w.deciding, nil
	}
	w.watch(x)
	d := x.decide(w.decide)
	if !d.appends() || len(d.Facts) > 1 && !w.unseen && w.seenInLog(ctx) {
		w.load(ctx, w.id, x)
		return w.deciding, nil
	}
	// Other writes to the session wait for this append too, so it must not end when its caller gives up. It expects a
	// session without events.
	first := jetlog.Append{Facts: d.Facts, Expect: new(uint64), Calls: w.calls}
	ack, err := w.log.Append(context.WithoutCancel(ctx), first)
	switch {
	case errors.Is(err, jetlog.ErrUnavailable) && !errors.Is(err, jetlog.ErrNoWrites):
		w.loaded(w.id, x, err)
		return nil, err
	case err != nil, ack.Duplicate:
		// The session exists, or this event can't begin it. The other writes that wait need the session all the same.
		w.load(ctx, w.id, x)
		return w.deciding, nil
	}
	x.become(w.nothing(w.id))
	w.loaded(w.id, x, nil)
	w.appendedTo(session.Head{}, ack, d.Facts)
	return w.settling(ack.Position.Seq), nil
}

// seenInLog reports whether the log seems to know the session. An append of several events shares an atomic batch with
// those of other sessions, and a refusal costs them too; so the log is asked first. The append still expects a session
// without events.
func (w *writing) seenInLog(ctx context.Context) bool {
	last, err := w.log.Seen(ctx, w.id)
	return err == nil && last > 0
}

// deciding runs the decision on the session's state.
func (w *writing) deciding(ctx context.Context) (state, error) {
	if w.rounds++; w.rounds > maxRounds {
		return nil, fmt.Errorf("%w: %w", jetlog.ErrUnavailable, services.ErrBusy)
	}
	x, err := w.current(ctx)
	if err != nil {
		return nil, err
	}
	w.watch(x)
	d := x.decide(w.decide)
	if w.lacksTurn(d) {
		return w.completing(d.applied + 1), nil
	}
	erased, err := w.erasedIdentity(ctx, d)
	switch {
	case err != nil:
		return nil, err
	case erased != nil:
		return w.closing(erased), nil
	}
	if v, counted := w.ownVerdict(d); counted {
		return w.answered(v)
	}
	switch {
	case d.appends():
		return w.appending(d), nil
	case w.known.fresh:
		return w.answering(d), nil
	default:
		return w.refreshing, nil
	}
}

// ownVerdict returns the verdict of the write's own event when the state now refuses the command. The event counted
// when it was written. A redaction that arrived since does not change this caller's answer. If the start only linked a
// session whose turn already existed, there is no turn to show.
func (w *writing) ownVerdict(d decided) (verdict, bool) {
	if d.Err == nil || w.own.last == 0 || w.own.afterErasure {
		return verdict{}, false
	}
	o, counted := w.outcome(w.own.last)
	if !counted || o.turn == nil && w.answersTurn {
		return verdict{}, false
	}
	at := events.Position{Partition: w.partition, Seq: w.own.last}
	return verdict{turn: o.turn, head: o.head, position: at, facts: w.own.facts(), summary: o.summary}, true
}

// appending appends the facts of a decision.
func (w *writing) appending(d decided) state {
	return func(ctx context.Context) (state, error) {
		a := jetlog.Append{Facts: d.Facts, Salt: w.next.salt, Calls: w.calls}
		if d.Expect {
			a.Expect = &d.applied
			if w.next.last != nil {
				a.Expect = w.next.last
			}
		}
		ack, err := w.log.Append(ctx, a)
		switch {
		case err != nil:
			return w.refused(err, d.applied)
		case ack.Duplicate && ack.Position.Seq <= d.applied:
			// The server knows the id from an event that had no effect, such as a final without a start.
			w.next.salt = strconv.FormatUint(ack.Position.Seq, 10)
			return w.deciding, nil
		case !ack.Duplicate:
			w.appendedTo(d.head, ack, d.Facts)
			if err := w.yielding(ctx, ack.Position.Seq); err != nil {
				return nil, err
			}
		}
		return w.settling(ack.Position.Seq), nil
	}
}

// yielding lets another write decide on what this one has appended, once that is folded.
func (w *writing) yielding(ctx context.Context, seq uint64) error {
	if w.yield == nil {
		return nil
	}
	defer w.yield()
	return w.folded(ctx, seq)
}

// refused returns the next state after the log refused the write's append.
func (w *writing) refused(err error, applied uint64) (state, error) {
	var conflict *jetlog.Conflict
	switch isConflict := errors.As(err, &conflict); {
	case isConflict && conflict.Last > applied:
		w.next.last = nil
		if w.yield != nil {
			return w.completing(conflict.Last), nil
		}
		return w.settling(conflict.Last), nil
	case isConflict && conflict.Last > 0 && conflict.Last < applied:
		w.next.last = &conflict.Last
		return w.deciding, nil
	case isConflict:
		return w.rereading, nil
	case errors.Is(err, jetlog.ErrBatchDuplicate):
		return w.renaming, nil
	default:
		return nil, err
	}
}

// settling waits until an event is on disk and folded.
func (w *writing) settling(seq uint64) state {
	return func(ctx context.Context) (state, error) { return w.deciding, w.settle(ctx, seq) }
}

// lacksTurn reports whether a decision was made on a state that has a link without the turn that came with it.
func (w *writing) lacksTurn(d decided) bool {
	return d.bare && w.follower.Folded(w.partition).At() <= d.applied
}

// completing waits until an event is folded. It is in the log already, or just behind.
func (w *writing) completing(seq uint64) state {
	return func(ctx context.Context) (state, error) { return w.deciding, w.folded(ctx, seq) }
}

// refreshing brings the state up to the log's end, with the events of all writers.
func (w *writing) refreshing(ctx context.Context) (state, error) {
	_, err := w.refresh(ctx)
	return w.deciding, err
}

// rereading drops the session from memory, so that deciding reads it from the log. After a retention the memory may
// hold more than the log.
func (w *writing) rereading(ctx context.Context) (state, error) {
	if _, err := w.refresh(ctx); err != nil {
		return nil, err
	}
	w.next.last = nil
	w.forget(w.id)
	return w.deciding, nil
}

// renaming changes the ids of the events of an atomic batch, which the server refused because it knows one of the ids.
func (w *writing) renaming(ctx context.Context) (state, error) {
	head, err := w.refresh(ctx)
	if err != nil {
		return nil, err
	}
	w.next = expectation{salt: strconv.FormatUint(head, 10)}
	return w.deciding, nil
}

// closing erases a session whose identity was erased. The eraser closes all sessions of an identity, but perhaps only
// after this write, which must find the session closed.
func (w *writing) closing(f *events.SessionErased) state {
	return func(ctx context.Context) (state, error) {
		ack, err := w.log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
		if err != nil {
			return nil, err
		}
		return w.settling(ack.Position.Seq), nil
	}
}

// answering answers from the state, or with the state's refusal.
func (w *writing) answering(d decided) state {
	return func(ctx context.Context) (state, error) {
		v, err := w.answer(ctx, d)
		if err != nil {
			return nil, err
		}
		return w.answered(v)
	}
}

// answer returns what the state says, or its refusal, once all that the decision saw is durable. Durability of the
// write's own event is not enough, since an answer also shows other events, such as another process's final, the
// session's identity and its counts.
func (w *writing) answer(ctx context.Context, d decided) (verdict, error) {
	if err := w.durable(ctx, d.applied); err != nil {
		return verdict{}, err
	}
	if d.Err != nil {
		return verdict{}, errors.Join(d.Err, w.record(ctx, d.Facts))
	}
	restsOn := d.RestsOn
	if restsOn == 0 {
		restsOn = d.applied
	}
	stated := restsOn
	if d.StatedAt != 0 {
		stated = d.StatedAt
	}
	at := events.Position{Partition: w.partition, Seq: restsOn}
	return verdict{turn: d.Turn, head: d.head, position: at, duplicate: !w.own.covers(stated),
		facts: w.own.facts()}, nil
}

// record appends the facts that a refusal must leave in the log. If the append fails, the refusal stands, and the
// caller sees both errors. A refused link that is asked for again and again is one attempt.
func (w *writing) record(ctx context.Context, facts []events.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	if f, ok := facts[0].(*events.LinkRefused); ok {
		x, err := w.current(ctx)
		if err != nil {
			return err
		}
		same, last := x.attempted(f)
		if same > 0 {
			return w.durable(ctx, same)
		}
		f.After = events.Position{Partition: w.partition, Seq: last}
	}
	ack, err := w.log.Append(ctx, jetlog.Append{Facts: facts})
	if err != nil {
		return err
	}
	return w.durable(ctx, ack.Position.Seq)
}
