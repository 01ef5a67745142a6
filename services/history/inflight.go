package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// inFlight holds the sessions that writes are at. Such a session stays in memory, and gets the events of the log, even
// if the cache drops it meanwhile.
type inFlight struct {
	mu sync.Mutex
	of map[string]*pin
}

// pin is one session of inFlight; session is nil until a write has asked for it.
type pin struct {
	*session
	writes int
	// adds holds a token while messages are added to the session.
	adds chan struct{}
}

// pin keeps the write's session in memory until unpin is called.
func (w *writing) pin() (unpin func()) {
	w.inFlight.mu.Lock()
	defer w.inFlight.mu.Unlock()
	p := w.inFlight.of[w.id]
	if p == nil {
		p = &pin{adds: make(chan struct{}, 1)}
		w.inFlight.of[w.id] = p
	}
	p.writes++
	return func() {
		w.unwatch()
		w.inFlight.mu.Lock()
		defer w.inFlight.mu.Unlock()
		if p.writes--; p.writes == 0 {
			delete(w.inFlight.of, w.id)
		}
	}
}

// alone waits until no other write of this process adds messages to the pinned session. Together they would lose races
// to each other.
func (w *writing) alone(ctx context.Context) (leave func(), err error) {
	w.inFlight.mu.Lock()
	adds := w.inFlight.of[w.id].adds
	w.inFlight.mu.Unlock()
	select {
	case adds <- struct{}{}:
		return func() { <-adds }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", jetlog.ErrUnavailable, ctx.Err())
	}
}

// get returns the pinned session, or nil.
func (f *inFlight) get(id string) *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.of[id]; p != nil {
		return p.session
	}
	return nil
}

// forget drops a session from memory. Whoever asks for it next reads it from the log.
func (s *Service) forget(id string) {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	if p := s.inFlight.of[id]; p != nil {
		p.session = nil
	}
	s.sessions.Invalidate(id)
}

// outcome is what an event did at its own position. A later event may have undone that, but does not change the answer
// to the event's writer.
type outcome struct {
	seq  uint64
	kind conversation.Kind
	turn *conversation.Turn
	head conversation.Head
	// summary is the one that the event states.
	summary *conversation.Summary
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
func (w *writing) watch(x *session) {
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
func (o *outcomes) keep(seq uint64, c conversation.Change, s *conversation.State) {
	if len(o.watchers) == 0 {
		return
	}
	if len(o.kept) >= max(o.full, keptOutcomes) {
		least := o.watchers[0].after // they come in the order of their sequences
		o.kept = slices.DeleteFunc(o.kept, func(old outcome) bool { return old.seq <= least })
		o.full = 2 * len(o.kept)
	}
	n := outcome{seq: seq, kind: c.Kind, head: s.Head()}
	if c.Kind == conversation.Summarized {
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
