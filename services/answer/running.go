package answer

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/services"
)

// room holds the answers that are being made, by their sessions.
type room struct {
	mu sync.Mutex
	of map[string][]*running
}

// running is an answer that is being made. It tells the listener that asked for it, and keeps what was told for others
// to watch. They read at their own pace what is kept once for all: a slow one holds nobody up, and costs nothing.
type running struct {
	asker services.Listener
	room  *room

	session string
	key     uuid.UUID
	// place of the turn: of several answers in a session the first one runs, and the others wait.
	place uint64
	stop  context.CancelCauseFunc
	// left is told when a watcher leaves.
	left func()

	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil while nobody waits for it
	begun   bool
	// queued: it waits for other answers.
	queued bool
	step   services.Step
	pieces []services.AnswerPiece
	end    *services.Answered
	// over is when end was set.
	over time.Time
	// watchers are how many watch beside the asker.
	watchers int
}

var _ services.Listener = (*running)(nil)

// listen returns the answer that a caller is to be told of; leave must be called at its end.
func (s *Service) listen(asker services.Listener) *running {
	return &running{asker: asker, room: &s.live}
}

// enter lets others watch an answer of a turn's place, and stop it.
func (r *room) enter(a *answering, place uint64) {
	to := a.to
	to.session, to.key, to.place, to.stop, to.left = a.session, a.key, place, a.stop, a.maybeHungUp
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[a.session] = append(r.of[a.session], to)
}

// leave ends the answer for those who still watch it.
func (r *running) leave() {
	r.Ended(services.Answered{Step: r.step, Err: services.ErrAnswerLost})
	r.room.mu.Lock()
	defer r.room.mu.Unlock()
	left := slices.DeleteFunc(r.room.of[r.session], func(one *running) bool { return one == r })
	if r.room.of[r.session] = left; len(left) == 0 {
		delete(r.room.of, r.session)
	}
}

// find returns the answer that runs in a session before the others, or that of a turn or of a step's key; else nil.
func (r *room) find(sessionID string, is func(*running) bool) (first *running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.of[sessionID] {
		if is(one) && (first == nil || one.place < first.place) {
			first = one
		}
	}
	return first
}

// ofTurn selects the answers of a turn; the nil id selects all.
func ofTurn(turn uuid.UUID) func(*running) bool {
	return func(r *running) bool { return turn == uuid.Nil || r.turn() == turn }
}

// ofResponse selects the answer of a response.
func ofResponse(id string) func(*running) bool {
	return func(r *running) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.step.ResponseID == id
	}
}

// placed notes whether the answer waits for others.
func (r *running) placed(queued bool) {
	r.mu.Lock()
	r.queued = queued
	r.mu.Unlock()
	if asker, waits := r.asker.(interface{ Placed(queued bool) }); waits {
		asker.Placed(queued)
	}
}

func (r *running) isQueued() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queued
}

func (r *running) turn() uuid.UUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step.TurnID
}

// change makes a change, and wakes up those who wait for it.
func (r *running) change(does func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	does()
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Begun implements services.Listener.
func (r *running) Begun(s services.Step) {
	r.change(func() { r.begun, r.step = true, s })
	if r.asker != nil {
		r.asker.Begun(s)
	}
}

// Piece implements services.Listener.
func (r *running) Piece(p services.AnswerPiece) {
	if r.asker != nil {
		r.asker.Piece(p)
	}
	r.change(func() { r.pieces = append(r.pieces, p) })
}

// Ended implements services.Listener; only the first call counts. What has no answer leaves nothing to be watched: it
// may have been redacted.
func (r *running) Ended(a services.Answered) {
	first := false
	r.change(func() {
		if first = r.end == nil; !first {
			return
		}
		if a.Err != nil {
			r.pieces = nil
		} else if a.Reply != nil && a.Reply.Content == "" {
			reply := *a.Reply
			reply.Content = textOf(r.pieces)
			a.Reply = &reply
		}
		r.end, r.over = &a, time.Now()
	})
	if first && r.begun && r.asker != nil {
		r.asker.Ended(a)
	}
}

// parts returns the parts of the answer so far.
func (r *running) parts() (parts []services.AnswerPart) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var texts []*strings.Builder // a Builder that has text may not be copied
	for _, p := range r.pieces {
		for p.Part >= len(parts) {
			parts, texts = append(parts, p.AnswerPart), append(texts, &strings.Builder{})
		}
		_, _ = texts[p.Part].WriteString(p.Text)
		if p.Item != nil {
			parts[p.Part].Item = p.Item
		}
	}
	for n := range parts {
		parts[n].Text = texts[n].String()
	}
	return parts
}

// count returns how many parts the answer has so far.
func (r *running) count() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pieces {
		n = max(n, p.Part+1)
	}
	return n
}

// lengths returns the lengths of the pieces so far.
func (r *running) lengths() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return services.PieceLengths(r.pieces)
}

// watched reports whether somebody watches beside the asker.
func (r *running) watched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watchers > 0
}

// wholeOf returns the parts of an answer that ended early without the calls that were cut off: those whose arguments
// are no JSON, and a custom tool's as the last part, since nothing but a further part shows that its input is whole.
func wholeOf(parts []services.AnswerPart) (out []services.AnswerPart) {
	for n, p := range parts {
		cut := p.Kind == services.PartCall && !json.Valid([]byte(p.Text)) ||
			p.Kind == services.PartCustomCall && n == len(parts)-1 && p.Item == nil
		if !cut {
			out = append(out, p)
		}
	}
	return out
}

// textOf returns what pieces tell the user.
func textOf(pieces []services.AnswerPiece) string {
	var b strings.Builder
	for _, p := range pieces {
		if p.Said() {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// standsEvery is how often a watcher that is behind the end of an answer asks whether the answer still stands.
const standsEvery = time.Second

// watch tells a listener of the answer from its beginning until it has ended. stands returns why the answer stands no
// more, if it doesn't: whoever is told so late is told no more of it.
func (r *running) watch(ctx context.Context, to services.Listener, stands func(context.Context) error) error {
	r.change(func() { r.watchers++ })
	defer func() {
		r.change(func() { r.watchers-- })
		r.left()
	}()
	begun := false
	var gone error
	var asked time.Time
	ends := func() bool {
		over, void := r.ended()
		if !over.IsZero() && time.Since(over) > standsEvery && time.Since(asked) > standsEvery {
			gone, asked = stands(ctx), time.Now()
		}
		return ctx.Err() != nil || void || gone != nil
	}
	for told := 0; ; {
		r.mu.Lock()
		step, news, end := r.step, r.pieces[min(told, len(r.pieces)):], r.end
		var more <-chan struct{}
		if len(news) == 0 && end == nil {
			if r.changed == nil {
				r.changed = make(chan struct{})
			}
			more = r.changed
		}
		begins := r.begun && !begun
		r.mu.Unlock()
		if begins {
			begun = true
			to.Begun(step)
		}
		for _, p := range news {
			if ends() {
				break
			}
			to.Piece(p)
			told++
		}
		switch late := ends(); {
		case ctx.Err() != nil:
			return ctx.Err()
		case late && gone != nil:
			to.Ended(services.Answered{Step: step, Err: gone})
			return nil
		case len(news) == 0 && end != nil && gaveUp(end.Err):
			return end.Err
		case len(news) == 0 && end != nil:
			to.Ended(*end)
			return nil
		case more != nil:
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	}
}

// gaveUp reports whether nobody knows the end of an answer, since its process has left it.
func gaveUp(err error) bool {
	return err == services.ErrAnswerLost || err == services.ErrNotRunning //nolint:errorlint // as they are set here
}

// known returns once it is known what is answered, or that it is not.
func (r *running) known(ctx context.Context) error {
	for {
		r.mu.Lock()
		begun, end := r.begun, r.end
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		more := r.changed
		r.mu.Unlock()
		switch {
		case begun:
			return nil
		case end != nil:
			return end.Err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *running) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end != nil
}

// ended returns when the answer ended, if it has; void: without one.
func (r *running) ended() (over time.Time, void bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over, r.end != nil && r.end.Err != nil
}

// Watch implements services.RunningAnswers.
func (s *Service) Watch(ctx context.Context, sessionID string, turn uuid.UUID, to services.Listener) error {
	r, _, leave, err := s.runs(ctx, sessionID, turn)
	if err != nil {
		return err
	}
	defer leave()
	return r.watch(ctx, to, func(ctx context.Context) error {
		_, err := s.cfg.Questions.Question(ctx, sessionID, r.turn())
		return err
	})
}

// runs returns the answer that runs in a session before the others, or that of a turn, or services.ErrNotRunning. Where
// one of this process waits for others, these may be elsewhere.
func (s *Service) runs(
	ctx context.Context, sessionID string, turn uuid.UUID,
) (r *running, key uuid.UUID, leave func(), err error) {
	here := s.live.find(sessionID, ofTurn(turn))
	if here != nil && (turn != uuid.Nil || !here.isQueued()) {
		return here, here.key, func() {}, nil
	}
	key, _, err = s.elsewhere(ctx, sessionID, turn)
	if err == nil && (here == nil || key != here.key) {
		var m *mirror
		if m, leave, err = s.mirrored(ctx, key); err == nil {
			return m.running, key, leave, nil
		}
	}
	if here != nil {
		return here, here.key, func() {}, nil
	}
	return nil, key, nil, err
}

// StopAnswer implements services.RunningAnswers.
func (s *Service) StopAnswer(ctx context.Context, sessionID string, turn uuid.UUID) (uuid.UUID, error) {
	r, key, leave, err := s.runs(ctx, sessionID, turn)
	if err != nil {
		return uuid.Nil, err
	}
	defer leave()
	if err := s.halt(ctx, r, key); err != nil {
		return uuid.Nil, err
	}
	return r.turn(), nil
}

// halt ends an answer with what is there, wherever it is made.
func (s *Service) halt(ctx context.Context, r *running, key uuid.UUID) error {
	if r.stop != nil {
		r.stop(errStopped)
		return nil
	}
	stopped, err := s.cfg.Relay.Stop(ctx, key)
	if err == nil && !stopped {
		err = services.ErrNotRunning
	}
	return err
}
