package write

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
)

// hydrated is the slim state of one session that is held in memory. While it is held, the tail folds every new event of
// the session into it, whichever process appended the event. Events that arrive while the session is still read from
// the log wait in early.
type hydrated struct {
	loaded chan struct{}
	err    error

	mu    sync.Mutex
	early []jetlog.Message
	ready bool
	// bare: the last event is a link, and the turn that came with it is just behind it.
	bare     bool
	outcomes outcomes
	folded
}

// folded is the folded state of a session that the service holds.
type folded struct {
	state *session.State
	// questionBytes counts the bytes of the questions that the state holds, and of the calls.
	questionBytes int
	calls         calls
	attempt       attempt
}

// attempt is the newest link that was refused: who asked, from where, and when.
type attempt struct {
	identity, source string
	seq              uint64
	time             time.Time
}

// fold folds an event that the session does not have yet.
func (x *folded) fold(e events.Recorded) session.Change {
	c, grown := fold(x.state, e)
	x.questionBytes += grown + x.calls.note(e)
	if f, refused := e.Fact.(*events.LinkRefused); refused {
		x.attempt = attempt{f.IdentityID, f.SourceHash, e.Position.Seq, e.Time}
	}
	return c
}

// attempted returns the event of the same refused link, or 0 if there is none that is new and the newest, and the
// session's last event.
func (x *hydrated) attempted(f *events.LinkRefused) (same, last uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.attempt; a.identity == f.IdentityID && a.source == f.SourceHash && time.Since(a.time) < repeatTime {
		same = a.seq
	}
	return same, x.state.Applied
}

// take folds an event of the tail.
func (x *hydrated) take(m *jetlog.Message) {
	if m.Position.Seq > x.state.Applied {
		e := m.Recorded()
		c := x.fold(e)
		x.outcomes.keep(&e, c, x.state)
		x.bare = m.Continues
	}
}

// session returns a session. It reads the session from the log if it is not in memory.
func (s *Service) session(ctx context.Context, id string) (*hydrated, error) {
	held, mine := s.hold(id)
	if mine {
		s.load(ctx, id, held)
	}
	select {
	case <-held.loaded:
		return held, held.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hold returns the held session. If it was not held yet, mine is true and the caller must load it. All others that want
// the session wait for that load, and so do the events that the tail delivers for it.
func (s *Service) hold(id string) (x *hydrated, mine bool) {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	x, held := s.sessions.GetIfPresent(id)
	p := s.inFlight.of[id]
	if p != nil && p.hydrated != nil {
		return p.hydrated, false
	}
	if !held {
		x, mine = s.sessions.SetIfAbsent(id, &hydrated{loaded: make(chan struct{}), folded: s.nothing(id)})
	}
	if p != nil {
		p.hydrated = x
	}
	return x, mine
}

// nothing returns the folded state of a session without events.
func (s *Service) nothing(id string) folded { return folded{state: session.New(id, s.cfg.Rules)} }

func (s *Service) load(ctx context.Context, id string, x *hydrated) {
	// Others wait for this load too, so it must not end when the caller who began it gives up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadDeadline)
	defer cancel()
	s.loaded(id, x, s.hydrate(ctx, id, x))
}

// loaded releases the writes that wait for a session. It drops a session that could not be loaded.
func (s *Service) loaded(id string, x *hydrated, err error) {
	defer close(x.loaded)
	if x.err = err; err != nil {
		s.forget(id)
		return
	}
	s.weighAnew(id)
}

const loadDeadline = 10 * time.Second

// hydrate reads the session from the log. For a cold session the server loads every block that holds one of its events,
// so only a few sessions are read at once.
func (s *Service) hydrate(ctx context.Context, id string, x *hydrated) error {
	select {
	case s.loads <- struct{}{}:
		defer func() { <-s.loads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	read := s.nothing(id)
	for e, err := range s.log.Session(ctx, id, 0, math.MaxUint64) {
		if err != nil {
			return fmt.Errorf("load session: %w", err)
		}
		read.fold(e)
	}
	x.become(read)
	return nil
}

// become sets the state of a session to the one that was read, and folds what the tail has delivered since.
func (x *hydrated) become(read folded) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.folded = read
	for i := range x.early {
		x.take(&x.early[i])
	}
	x.early, x.ready = nil, true
}

// deliver folds an event of the tail, or keeps it until the session is loaded.
func (x *hydrated) deliver(m jetlog.Message) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ready {
		x.early = append(x.early, m)
		return
	}
	x.take(&m)
}

// fold folds an event into a state. The only texts it keeps are the questions of pending turns, since the writer of an
// answer is shown question and answer. It returns by how many bytes these questions grew.
func fold(state *session.State, e events.Recorded) (c session.Change, grown int) {
	held := 0
	if f, ok := e.Fact.(*events.TurnPruned); ok {
		if t := state.Turn(f.TurnID); t != nil {
			held = weightOf(t.Question)
		}
	}
	c = state.Fold(e)
	if c.Kind == session.Pruned {
		if f, _ := e.Fact.(*events.TurnPruned); c.Turn.Status == session.Pending && f != nil {
			own := f.Question
			c.Turn.Question = state.Allowed(&own)
		}
		return c, weightOf(c.Turn.Question) - held
	}
	if f, ok := e.Fact.(*events.TurnStarted); ok && c.Kind == session.Started {
		own := f.Question // of the fact nothing else stays in memory
		c.Turn.Question = state.Allowed(&own)
		return c, weightOf(c.Turn.Question)
	}
	switch {
	case c.Kind == session.WasExtended && c.Turn.Status == session.Pending:
		grown = -weightOf(c.Turn.Question)
		state.Extend(c.Turn, e.Fact)
		grown += weightOf(c.Turn.Question)
	case c.Kind == session.Answered:
		grown = -weightOf(c.Turn.Question)
		c.Turn.Question = nil
	}
	return c, grown
}

// size returns the bytes of a question's texts.
func size(q *events.Question) int {
	if q == nil {
		return 0
	}
	return len(q.QuestionNeutral) + len(q.QuestionTranslated) + len(q.QuestionMessages)
}

// weightOf estimates the bytes of a question in memory.
func weightOf(q *events.Question) int {
	if q == nil {
		return 0
	}
	n := size(q) + len(q.Metadata)
	return sizeOfQuestion + n + n/8 + len(q.PipelineName) + len(q.Consultant) + len(q.Repository)
}

// sizeOfQuestion is what a question takes in memory, its texts apart. Large texts take an eighth more than their bytes.
const sizeOfQuestion = 208

// decide runs a decision on the state as it is.
func (x *hydrated) decide(f decider) decided {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := f(x.state)
	if d.Turn != nil {
		own := *d.Turn
		d.Turn = &own
	}
	return decided{d, x.state.Applied, x.state.Head(), x.bare}
}
