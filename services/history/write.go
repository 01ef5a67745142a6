package history

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// verdict is what the log says of a command.
type verdict struct {
	turn *conversation.Turn
	head conversation.Head
	// position of the event that the answer rests on; duplicate where another
	// request brought it.
	position  events.Position
	duplicate bool
	// facts that this write itself appended.
	facts []events.Fact
}

// attempts bounds how often a write decides anew after it lost a race. Each round
// somebody else has won, so this is reached only by a log that misbehaves.
const attempts = 32

// write decides, appends and decides again on the state that holds the event,
// until the log gives the answer.
func (s *Service) write(ctx context.Context, sessionID string, decide decider) (verdict, error) {
	return s.writing(sessionID).run(ctx, decide)
}

// writeTurn is write for what is answered with a turn.
func (s *Service) writeTurn(ctx context.Context, sessionID string, decide decider) (verdict, error) {
	w := s.writing(sessionID)
	w.ofTurn = true
	return w.run(ctx, decide)
}

// decider is a decision of one command.
type decider func(*conversation.State) conversation.Decision

func (s *Service) writing(sessionID string) *writing {
	return &writing{Service: s, id: sessionID, partition: s.log.Partition(sessionID)}
}

func (w *writing) run(ctx context.Context, decide decider) (verdict, error) {
	w.decide = decide
	if err := w.begin(ctx); err != nil {
		return verdict{}, err
	}
	for range attempts {
		v, done, err := w.round(ctx)
		if done || err != nil {
			return v, err
		}
	}
	return verdict{}, fmt.Errorf("%w: the session is too busy to decide on; try again", jetlog.ErrUnavailable)
}

// writing is one write on its way.
type writing struct {
	*Service
	id        string
	partition int
	decide    decider

	// first and last sequence that this write appended; 0 before.
	first, last uint64
	facts       []events.Fact
	// ofTurn: what is asked for is answered with a turn; begins: it may be a session's first.
	ofTurn, begins bool
	// fresh: the state holds all that was acknowledged before this write was asked for.
	// Only such a state may answer or refuse without an append.
	fresh bool
	// expect overrides the expectation, where the server's last sequence went back
	// behind the state's, since the session's last event was erased.
	expect *uint64
	salt   string
	// held is the head of the log that the state holds, where that was asked for.
	held uint64
	// living is the session's identity once it was seen not to be erased. linked tells that
	// the session had one before this write's own event, and late that it was erased by then.
	living       string
	linked, late bool
}

// begin appends the first event of a session that nobody here holds without asking the log
// whether there is one: the log refuses it where there is, and the session is read then.
func (w *writing) begin(ctx context.Context) error {
	if !w.begins {
		return nil
	}
	if err := w.following(ctx); err != nil {
		return err
	}
	x, mine := w.hold(w.id)
	if !mine {
		return nil
	}
	d, _, _ := x.decide(w.decide)
	if d.Err != nil || len(d.Facts) == 0 {
		w.load(ctx, w.id, x)
		return nil
	}
	// Others wait for this append too: it does not end with its caller.
	ack, err := w.log.Append(context.WithoutCancel(ctx), jetlog.Append{Facts: d.Facts, Expect: new(uint64)})
	switch {
	case errors.Is(err, jetlog.ErrUnavailable) && !errors.Is(err, jetlog.ErrNoWrites):
		w.loaded(w.id, x, err)
		return err
	case err != nil, ack.Duplicate:
		// It was begun, or this one can't begin it: that is no answer to the others.
		w.load(ctx, w.id, x)
		return nil
	}
	x.become(&session{state: conversation.New(w.id, w.cfg.Rules)})
	w.loaded(w.id, x, nil)
	w.appended(ack, d.Facts, conversation.Head{})
	return w.settle(ctx, ack.Position.Seq)
}

// appended notes what this write appended to a session of that head.
func (w *writing) appended(ack jetlog.Ack, facts []events.Fact, head conversation.Head) {
	w.first, w.last, w.facts = ack.Position.Seq-uint64(len(facts))+1, ack.Position.Seq, facts
	w.fresh, w.linked = true, head.Identity != ""
}

func (w *writing) round(ctx context.Context) (verdict, bool, error) {
	x, err := w.current(ctx)
	if err != nil {
		return verdict{}, false, err
	}
	d, applied, head := x.decide(w.decide)
	if closed, err := w.ofErased(ctx, head, applied); closed || err != nil {
		return verdict{}, false, err
	}
	if own, took := x.took(w.last); d.Err != nil && w.last != 0 && took && !w.late && (own.turn != nil || !w.ofTurn) {
		// It counted, and was shown: what took it back since is no answer to it. Of a turn
		// that stood already, and whose start only linked the session, nothing is shown.
		at := events.Position{Partition: w.partition, Seq: w.last}
		return verdict{turn: own.turn, head: own.head, position: at, facts: w.facts}, true, nil
	}
	switch {
	case !w.fresh && (d.Err != nil || len(d.Facts) == 0):
		_, err := w.refresh(ctx)
		return verdict{}, false, err
	case d.Err != nil || len(d.Facts) == 0:
		v, err := w.answer(ctx, d, head, applied)
		return v, true, err
	}
	a := jetlog.Append{Facts: d.Facts, Salt: w.salt}
	if d.Expect {
		a.Expect = &applied
		if w.expect != nil {
			a.Expect = w.expect
		}
	}
	ack, err := w.log.Append(ctx, a)
	if err != nil {
		return verdict{}, false, w.lost(ctx, err, applied)
	}
	if ack.Duplicate && ack.Position.Seq <= applied {
		// The server knows the id from an event that did not count, such as a final
		// without a start: say it again under another.
		w.salt = strconv.FormatUint(ack.Position.Seq, 10)
		return verdict{}, false, nil
	}
	if !ack.Duplicate {
		w.appended(ack, d.Facts, head)
	}
	return verdict{}, false, w.settle(ctx, ack.Position.Seq)
}

// refresh brings the fold to what the log holds now, whoever wrote it, and gives the
// log's last sequence.
func (w *writing) refresh(ctx context.Context) (uint64, error) {
	head, err := w.log.Head(ctx, w.partition)
	if err != nil {
		return 0, err
	}
	w.fresh, w.held = true, head.Seq
	return head.Seq, w.settle(ctx, head.Seq)
}

// current gives the session, read anew where what is held was dropped from memory
// before it came to this write's own event.
func (w *writing) current(ctx context.Context) (*session, error) {
	if err := w.following(ctx); err != nil {
		return nil, err
	}
	return w.session(ctx, w.id)
}

// following waits until this process follows the partition.
func (w *writing) following(ctx context.Context) error {
	select {
	case <-w.parts[w.partition].started:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", jetlog.ErrUnavailable, ctx.Err())
	}
}

// settle waits until an event is on disk and folded: the disk is at work while the
// event is on its way to the fold.
func (w *writing) settle(ctx context.Context, seq uint64) error {
	if err := w.durable(ctx, seq); err != nil {
		return err
	}
	if err := w.log.Reached(ctx, &w.parts[w.partition].folded, events.Position{Partition: w.partition, Seq: seq}); err != nil {
		return fmt.Errorf("%w: %w", jetlog.ErrUnavailable, err)
	}
	return nil
}

func (w *writing) durable(ctx context.Context, seq uint64) error {
	if err := w.log.Durable(ctx, events.Position{Partition: w.partition, Seq: seq}); err != nil {
		return fmt.Errorf("%w: %w", jetlog.ErrUnavailable, err)
	}
	return nil
}

// lost deals with an append that the log refused: it waits until the fold knows
// why, and lets the next round decide.
func (w *writing) lost(ctx context.Context, err error, applied uint64) error {
	var conflict *jetlog.Conflict
	switch {
	case errors.As(err, &conflict) && conflict.Last > applied:
		w.expect = nil
		return w.settle(ctx, conflict.Last)
	case errors.As(err, &conflict) && conflict.Last > 0 && conflict.Last < applied:
		w.expect = &conflict.Last
		return nil
	case errors.As(err, &conflict), errors.Is(err, jetlog.ErrBatchDuplicate):
		head, err := w.refresh(ctx)
		if err != nil {
			return err
		}
		w.expect = nil
		if conflict != nil {
			// What is held may be more than the log still has, after a retention.
			w.sessions.Invalidate(w.id)
		} else {
			w.salt = strconv.FormatUint(head, 10)
		}
		return nil
	default:
		return err
	}
}

// answer gives what the state says, a refusal too, once all that the decision saw is
// durable: an answer shows more than the event that it rests on, such as another
// process's final, the session's identity and counts.
func (w *writing) answer(ctx context.Context, d conversation.Decision, head conversation.Head, applied uint64) (verdict, error) {
	if err := w.durable(ctx, applied); err != nil {
		return verdict{}, err
	}
	if d.Err != nil {
		return verdict{}, errors.Join(d.Err, w.record(ctx, d.Facts))
	}
	rest := d.RestsOn
	if rest == 0 {
		rest = applied
	}
	said := rest
	if d.StatedAt != 0 {
		said = d.StatedAt
	}
	mine := w.last != 0 && said >= w.first && said <= w.last
	at := events.Position{Partition: w.partition, Seq: rest}
	return verdict{turn: d.Turn, head: head, position: at, duplicate: !mine, facts: w.facts}, nil
}

// record keeps what must be known of a refusal. The refusal stands if it fails,
// but the caller is told.
func (w *writing) record(ctx context.Context, facts []events.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	a := jetlog.Append{Facts: facts}
	if f, ok := facts[0].(*events.LinkRefused); ok {
		a.Salt = f.SourceHash // who asks from another address asks anew
	}
	ack, err := w.log.Append(ctx, a)
	if err != nil {
		return err
	}
	return w.durable(ctx, ack.Position.Seq)
}
