package write

import (
	"context"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// writing is one write on its way to its verdict. It is a machine of ten states. Each state is a method of the same
// name, or the function that this method returns where the state needs a value. A state does its work, which may
// block, and returns the state that comes next. Each deciding in the picture is the same state.
//
//	StartTurn ──▶ beginning ─┬─▶ settling ─▶ deciding
//	                         └─▶ deciding
//	the others ─▶ deciding ─┬─▶ appending ─┬─▶ settling ──▶ deciding
//	                        │              ├─▶ rereading ─▶ deciding
//	                        │              ├─▶ renaming ──▶ deciding
//	                        │              ├─▶ completing ▶ deciding
//	                        │              └─▶ deciding
//	                        ├─▶ closing ─────▶ settling ──▶ deciding
//	                        ├─▶ completing ──▶ deciding
//	                        ├─▶ refreshing ──▶ deciding
//	                        ├─▶ answering ───▶ verdict
//	                        └─▶ verdict
//
//	state       waits for                      event                                    next state
//	beginning   the append of a session's      the event is stored                      settling
//	            first event                    the session exists, here or in the log   deciding
//	deciding    the session in memory          there are facts to append                appending
//	                                           the state has a link without its turn    completing
//	                                           the session's identity was erased        closing
//	                                           no facts, and the state may be old       refreshing
//	                                           no facts, and the state is fresh         answering
//	                                           the write's own event counted already    verdict
//	appending   the log's answer               stored, or another event came first      settling
//	                                           the same, while others wait to write     completing
//	                                           an event without effect has its id       deciding
//	                                           the session's last event was erased      deciding
//	                                           the state holds more than the log        rereading
//	                                           an event of its batch is in the log      renaming
//	settling    the disk, then the fold                                                 deciding
//	completing  the fold                                                                deciding
//	refreshing  the log's head, then settling                                           deciding
//	rereading   as refreshing                  the session is dropped from memory       deciding
//	renaming    as refreshing                  the events get other ids                 deciding
//	closing     the append of SessionErased    stored                                   settling
//	answering   the disk                                                                verdict
//
// A refusal that deciding finds goes through the same states as an answer. If the log does not answer, the write ends
// with that error, in every state. Every loop goes through deciding, which bounds the rounds.
type writing struct {
	*Service
	id        string
	partition int
	decide    decider
	// answersTurn: the write is answered with a turn, and not with the session. dropped and question complete that
	// turn.
	answersTurn bool
	dropped     []string
	question    *events.Question

	// yield, if set, is called once the write's append is in the fold, before it is on disk. Then another write may
	// decide on it: what stands behind an event is durable only when the event is.
	yield func()
	// calls are the headers of the events that the write appends; nil for most.
	calls []string

	// unseen: the log has just said that it seems not to know the session, or its id was drawn for this write.
	unseen bool

	// rooted is the identity that the root of a branch has.
	rooted string

	rounds int
	own    appended
	known  knowledge
	// watched is the session whose outcomes the write may ask for.
	watched *hydrated
	next    expectation
	verdict verdict
}

// state does the work of a write in one state, and returns the next state, or nil once there is a verdict.
type state func(context.Context) (state, error)

// decider is the decision of one command.
type decider func(*session.State) decide.Decision

// decided is a decision with the state it was made on: the state's last sequence and its head.
type decided struct {
	decide.Decision
	applied uint64
	head    session.Head
	// bare: the state has a link without the turn that came with it (hydrated.bare).
	bare bool
}

// appends reports whether the decision asks for an append. Without one, the state has the answer or the refusal.
func (d decided) appends() bool { return d.Err == nil && len(d.Facts) > 0 }

// appended holds the events that the write itself has appended; the zero value means none yet.
type appended struct {
	first, last uint64
	// appends are all its appends, the last one included.
	appends []span
	// linkedBefore: the session had an identity before the write's first event.
	linkedBefore bool
	// afterErasure: that identity had been erased before the write's first event, so that event is no answer.
	afterErasure bool
}

// span is one append: the sequences of its facts.
type span struct {
	first, last uint64
	facts       []events.Fact
}

// covers reports whether one of the write's own events stands at a sequence.
func (a appended) covers(seq uint64) bool {
	return slices.ContainsFunc(a.appends, func(s span) bool { return seq >= s.first && seq <= s.last })
}

// facts returns the facts of the last append.
func (a appended) facts() []events.Fact {
	if len(a.appends) == 0 {
		return nil
	}
	return a.appends[len(a.appends)-1].facts
}

// at returns the sequence at which the write appended a fact, or 0 if it did not.
func (a appended) at(f events.Fact) uint64 {
	for _, s := range a.appends {
		if i := slices.Index(s.facts, f); i >= 0 {
			return s.first + uint64(i)
		}
	}
	return 0
}

// knowledge is what the write has learned from the log beside the session's state.
type knowledge struct {
	// fresh: the state holds all that was acknowledged before this write was asked for. Only a fresh state may answer
	// or refuse without an append.
	fresh bool
	// head is the partition's last sequence when refresh asked for it.
	head uint64
	// livingIdentity is the session's identity once the log has shown that it was not erased.
	livingIdentity string
}

// expectation changes how the write appends after an append that failed.
type expectation struct {
	// last, if set, is expected in place of the state's last sequence. The server's last sequence is lower than the
	// state's after the session's last event was erased.
	last *uint64
	// salt changes the event's id, since the server knows the plain id from an event without effect.
	salt string
}

// verdict is what the log says of a command.
type verdict struct {
	turn *session.Turn
	head session.Head
	// position of the event that the answer rests on; duplicate if another request appended that event.
	position  events.Position
	duplicate bool
	// facts that this write itself appended.
	facts []events.Fact
	// summary that the write's own event states, if the session has changed since.
	summary *session.Summary
}

func (s *Service) writing(sessionID string) *writing {
	return &writing{Service: s, id: sessionID, partition: s.log.Partition(sessionID)}
}

// run decides, appends and decides again on the state that holds the event, until the log has the answer.
func (w *writing) run(ctx context.Context, first state, decide decider) (verdict, error) {
	w.decide = decide
	for now := first; now != nil; {
		next, err := now(ctx)
		if err != nil {
			return verdict{}, err
		}
		now = next
	}
	return w.verdict, nil
}

// answered ends the write with a verdict.
func (w *writing) answered(v verdict) (state, error) {
	w.verdict = v
	return nil, nil
}

// appendedTo notes what the write appended to a session with this head. A state that holds the appended events is
// fresh.
func (w *writing) appendedTo(head session.Head, ack jetlog.Ack, facts []events.Fact) {
	last := ack.Position.Seq
	first := last - uint64(len(facts)) + 1
	w.own = appended{
		first: first, last: last, appends: append(w.own.appends, span{first, last, facts}),
		linkedBefore: head.Identity != "",
	}
	w.known.fresh = true
}

// turn runs a write that is answered with a turn, and returns the turn with its texts as the log has them.
func (w *writing) turn(ctx context.Context, first state, decide decider) (services.Turn, error) {
	w.answersTurn = true
	defer w.pin()()
	v, err := w.run(ctx, first, decide)
	if err != nil {
		return services.Turn{}, err
	}
	identity, err := w.identityNow(ctx, v.head)
	if err != nil {
		return services.Turn{}, err
	}
	t := services.Turn{
		Turn: *v.turn, SessionID: w.id, IdentityID: identity, Position: v.position,
		Duplicate: v.duplicate, Existed: !w.own.covers(v.turn.Started), DroppedMetadata: w.dropped,
	}
	if t.Status == session.Redacted {
		return t, nil // a tombstone has no texts
	}
	if w.question != nil {
		t.Question = w.question
	}
	if !v.duplicate {
		for _, f := range v.facts {
			// The state's question has an extension already, and texts reads an extended answer.
			if _, extends := f.(*events.TurnExtended); !extends {
				w.cfg.Rules.Fill(&t.Turn, f)
			}
		}
	}
	return t, w.texts(ctx, &t.Turn)
}

// answerSession runs a write that is answered with its session.
func (w *writing) answerSession(ctx context.Context, decide decider) (services.Session, error) {
	defer w.pin()()
	v, err := w.run(ctx, w.deciding, decide)
	if err == nil {
		v.head.Identity, err = w.identityNow(ctx, v.head)
	}
	return services.Session{SessionID: w.id, Head: v.head, Position: v.position, Duplicate: v.duplicate}, err
}

// identityNow returns the identity of a session with a head: a branch whose root was erased has none.
func (w *writing) identityNow(ctx context.Context, head session.Head) (string, error) {
	root := head.Fork().Root
	if root == "" || head.Identity == "" {
		return head.Identity, nil
	}
	return w.lent(ctx, root)
}

// current returns the session once this process follows its partition. A session that is not in memory, or not any
// more, is read from the log.
func (w *writing) current(ctx context.Context) (*hydrated, error) {
	if err := w.following(ctx); err != nil {
		return nil, err
	}
	return w.session(ctx, w.id)
}

// following waits until this process follows the partition.
func (w *writing) following(ctx context.Context) error {
	select {
	case <-w.follower.Started(w.partition):
		return nil
	case <-ctx.Done():
		return jetlog.Unavailable("", ctx.Err())
	}
}

// refresh folds all that the log holds now, from all writers, and returns the partition's last sequence.
func (w *writing) refresh(ctx context.Context) (uint64, error) {
	head, err := w.log.Head(ctx, w.partition)
	if err != nil {
		return 0, err
	}
	w.known.fresh, w.known.head = true, head.Seq
	return head.Seq, w.settle(ctx, head.Seq)
}

// settle waits until an event is on disk, and then until it is folded. The fold does not wait for the disk: mostly it
// is done by then.
func (w *writing) settle(ctx context.Context, seq uint64) error {
	if err := w.durable(ctx, seq); err != nil {
		return err
	}
	return w.folded(ctx, seq)
}

// folded waits until an event is folded.
func (w *writing) folded(ctx context.Context, seq uint64) error {
	at := events.Position{Partition: w.partition, Seq: seq}
	if err := w.log.Reached(ctx, w.follower.Folded(w.partition), at); err != nil {
		return jetlog.Unavailable("", err)
	}
	return nil
}

// durable waits until an event is on disk.
func (w *writing) durable(ctx context.Context, seq uint64) error {
	if err := w.log.Durable(ctx, events.Position{Partition: w.partition, Seq: seq}); err != nil {
		return jetlog.Unavailable("", err)
	}
	return nil
}
