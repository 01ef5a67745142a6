package index_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/index"
)

// hand feeds one partition of a view or of a generation one batch at a time, when it is told to.
type hand struct {
	projections.Intake
	w         *world
	partition int
}

// claim claims the partition of a session for a hand.
func (w *world) claim(t testing.TB, sink projections.Sink, session string) *hand {
	t.Helper()
	k := events.Partition(session, w.Log.Partitions())
	cp := must.Get(sink.Claim(t.Context(), k))(t)
	cp.Partition, cp.Created = k, w.Log.Created(k)
	return &hand{projections.Intake{Sink: sink, At: cp, Done: func(projections.Batch) {}}, w, k}
}

// openWithTurn opens a view, and has the log hold a turn of the session s, which is Ann's.
func (w *world) openWithTurn(t testing.TB) *index.View {
	t.Helper()
	w.Append(t, annAsks("the first question", "yes")...)
	return w.Open(t)
}

// next returns the events behind the checkpoint.
func (h *hand) next(t testing.TB) (run []projections.Judged) {
	t.Helper()
	head := must.Get(h.w.Log.Head(t.Context(), h.partition))(t)
	if head.Seq == h.At.Seq {
		return nil
	}
	tail := must.Get(h.w.Log.Tail(t.Context(), h.partition, h.At.Seq, jetlog.TailOptions{}))(t)
	defer tail.Close()
	judge := projections.NewJudge(h.w.Log, h.w.Rules, h.At.Seq)
	for len(run) == 0 || run[len(run)-1].Position.Seq < head.Seq {
		for _, m := range must.Get(tail.Next(t.Context()))(t) {
			run = append(run, must.Get(judge.Judge(t.Context(), m.Recorded()))(t))
		}
	}
	return run
}

// reach applies all that the log holds as one batch.
func (h *hand) reach(t testing.TB) error {
	t.Helper()
	return h.Apply(t.Context(), h.next(t))
}

// must applies all that the log holds.
func (h *hand) must(t testing.TB) *hand {
	t.Helper()
	require.NoError(t, h.reach(t))
	return h
}

// clock is set by a test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

// newClock makes a clock that stands still.
func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// set has a view go by the clock.
func (c *clock) set(cfg *index.Config) { cfg.Now = c.read }

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

var errLost = projections.Unavailable(errors.New("the answer was lost"))

// spied is a store whose calls a test sees, and may keep from the store by an error.
type spied struct {
	index.Objects
	put    func([]index.Object) error
	refuse func(*index.Object) bool // chooses objects that the store does not take; it takes the others
	delete func(ids []uuid.UUID) error
	near   func(index.Near) // of both halves at once
	page   func()
}

// Put implements index.Objects.
func (s *spied) Put(ctx context.Context, collection string, objects []index.Object) error {
	if s.put != nil {
		if err := s.put(objects); err != nil {
			return err
		}
	}
	var refused []uuid.UUID
	if s.refuse != nil {
		objects = slices.DeleteFunc(slices.Clone(objects), func(o index.Object) bool {
			refuse := s.refuse(&o)
			if refuse {
				refused = append(refused, o.ID)
			}
			return refuse
		})
	}
	if err := s.Objects.Put(ctx, collection, objects); err != nil || refused == nil {
		return err
	}
	return &index.Refused{IDs: refused}
}

// Delete implements index.Objects.
func (s *spied) Delete(ctx context.Context, collection string, ids []uuid.UUID) error {
	if s.delete != nil {
		if err := s.delete(ids); err != nil {
			return err
		}
	}
	return s.Objects.Delete(ctx, collection, ids)
}

// Near implements index.Objects.
func (s *spied) Near(ctx context.Context, collection string, n index.Near) ([]projections.Hit, error) {
	if s.near != nil {
		s.near(n)
	}
	return s.Objects.Near(ctx, collection, n)
}

// Page implements index.Objects.
func (s *spied) Page(ctx context.Context, collection string, after uuid.UUID, limit int) ([]index.Object, error) {
	if s.page != nil {
		s.page()
	}
	return s.Objects.Page(ctx, collection, after, limit)
}

// spy opens a view on a store that a test sees.
func (w *world) spy(t testing.TB) (*index.View, *spied) {
	t.Helper()
	s := &spied{Objects: w.Store.Objects}
	return w.Open(t, func(c *index.Config) { c.Store.Objects = s }), s
}

// interrupted are notes in which a test does something right before a call, once.
type interrupted struct {
	desk.Notes
	call string
	once func()
}

func (n *interrupted) before(call string) {
	if once := n.once; once != nil && strings.HasPrefix(call, n.call) {
		n.once = nil
		once()
	}
}

// Read implements desk.Notes.
func (n *interrupted) Read(ctx context.Context, key string, into any) (uint64, error) {
	n.before("read " + key)
	return n.Notes.Read(ctx, key, into)
}

// Commit implements desk.Notes.
func (n *interrupted) Commit(ctx context.Context, key string, value any, guard string, revision uint64) error {
	n.before("commit " + key)
	return n.Notes.Commit(ctx, key, value, guard, revision)
}

// forgetful is a store whose answer to the first new collection is lost.
type forgetful struct {
	index.Collections
	lost bool
}

// Create implements index.Collections.
func (f *forgetful) Create(ctx context.Context, c index.Collection) error {
	err := f.Collections.Create(ctx, c)
	if !f.lost {
		f.lost, err = true, errLost
	}
	return err
}

// collections returns the names of all collections of the index.
func (w *world) collections(t testing.TB) (names []string) {
	t.Helper()
	for _, c := range must.Get(w.Store.List(t.Context()))(t) {
		names = append(names, c.Name)
	}
	return names
}

// only returns the one collection of the index.
func (w *world) only(t testing.TB) index.Collection {
	t.Helper()
	all := must.Get(w.Store.List(t.Context()))(t)
	require.Len(t, all, 1)
	return all[0]
}

// object returns what the store has of a turn of the one collection, with vectors; nil if it has none.
func (w *world) object(t testing.TB, session, request string) *index.Object {
	t.Helper()
	found := must.Get(w.Store.ByID(t.Context(), w.only(t).Name, []uuid.UUID{events.TurnID(session, request)},
		index.WithVectors))(t)
	if len(found) == 0 {
		return nil
	}
	return &found[0]
}

// answerOf returns the answer's text as the log has it.
func answerOf(t testing.TB, w *world, session, request string) string {
	t.Helper()
	s := natstest.Fold(t, w.Log, session, w.Rules)
	return s.Turn(events.TurnID(session, request)).Answer.AnswerNeutral
}
