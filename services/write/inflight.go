package write

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/convoy"
	"github.com/turnledger/turnledger/events/session"
)

// inFlight holds the sessions that writes are at. Such a session stays in memory, and gets the events of the log, even
// if the cache drops it meanwhile.
type inFlight struct {
	mu sync.Mutex
	of map[string]*pin
}

// pin is one session of inFlight; hydrated is nil until a write has asked for it.
type pin struct {
	*hydrated
	writes int
	// adds are the calls that add messages to the session. Appends of their own would lose races to each other.
	adds convoy.Convoy[*adding]
	// forks are the forks of the session, for the same reason.
	forks convoy.Convoy[*forking]
}

// pin keeps a session in memory until unpin.
func (f *inFlight) pin(id string) *pin {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.of[id]
	if p == nil {
		p = &pin{}
		f.of[id] = p
	}
	p.writes++
	return p
}

func (f *inFlight) unpin(id string, p *pin) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.writes--; p.writes == 0 {
		delete(f.of, id)
	}
}

// pin keeps the write's session in memory until unpin is called.
func (w *writing) pin() (unpin func()) {
	p := w.inFlight.pin(w.id)
	return func() {
		w.unwatch()
		w.inFlight.unpin(w.id, p)
	}
}

// get returns the pinned session, or nil.
func (f *inFlight) get(id string) *hydrated {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.of[id]; p != nil {
		return p.hydrated
	}
	return nil
}

// forget drops a session from memory. Whoever asks for it next reads it from the log.
func (s *Service) forget(id string) {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	if p := s.inFlight.of[id]; p != nil {
		p.hydrated = nil
	}
	s.sessions.Invalidate(id)
}

// outcome is what an event did at its own position. A later event may have undone that, but does not change the answer
// to the event's writer.
type outcome struct {
	seq uint64
	// id, call and time are the event's.
	id, call string
	time     time.Time

	kind session.Kind
	turn *session.Turn
	head session.Head
	// summary is the one that the event states.
	summary *session.Summary
}

// outcomes holds the outcomes of a session's events while writes to it are in flight: the writer of an event may learn
// only later where the event stands.
type outcomes struct {
	kept []outcome
	// watchers are the writes, each with the sequence after which it has something in the log.
	watchers []watcher
	// full is how many outcomes there may be before the old ones are looked through.
	full int
}

type watcher struct {
	*writing
	after uint64
}

// keptOutcomes is how many outcomes a session holds before it looks which of them no write waits for.
const keptOutcomes = 64

// watch keeps the outcomes of what comes into the session from now on, until the write ends.
func (w *writing) watch(x *hydrated) {
	if w.watched == x {
		return
	}
	w.unwatch()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.outcomes.watchers = append(x.outcomes.watchers, watcher{w, x.state.Applied})
	w.watched = x
}

func (w *writing) unwatch() {
	x := w.watched
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	o := &x.outcomes
	o.watchers = slices.DeleteFunc(o.watchers, func(other watcher) bool { return other.writing == w })
	if len(o.watchers) == 0 {
		*o = outcomes{}
	}
	w.watched = nil
}

// keep notes what an event did, if a write may ask for it.
func (o *outcomes) keep(e *events.Recorded, c session.Change, s *session.State) {
	if len(o.watchers) == 0 {
		return
	}
	if len(o.kept) >= max(o.full, keptOutcomes) {
		least := o.watchers[0].after // they come in the order of their sequences
		o.kept = slices.DeleteFunc(o.kept, func(old outcome) bool { return old.seq <= least })
		o.full = 2 * len(o.kept)
	}
	seq := e.Position.Seq
	n := outcome{seq: seq, id: e.ID, call: e.Call, time: e.Time, kind: c.Kind, head: s.Head()}
	if c.Kind == session.Summarized {
		n.summary = s.SummaryAt(seq)
	}
	if c.Turn != nil {
		own := *c.Turn
		own.Question = nil // texts are not kept
		n.turn = &own
	}
	o.kept = append(o.kept, n)
}

// outcome returns the outcome of an event that the write appended, and reports whether the event counted.
func (w *writing) outcome(seq uint64) (outcome, bool) {
	x := w.watched
	if x == nil || seq == 0 {
		return outcome{}, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	at, found := slices.BinarySearchFunc(x.outcomes.kept, seq, func(o outcome, seq uint64) int {
		return cmp.Compare(o.seq, seq)
	})
	if !found {
		return outcome{}, false
	}
	o := x.outcomes.kept[at]
	return o, o.kind.ChangesView()
}
