package follower_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/follower"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

var rules = session.Rules{SessionTTL: time.Hour}

// shaky is a log whose tails break, and that fails now and then, until it is healed.
type shaky struct {
	*jetlog.Log
	well  atomic.Bool
	mu    sync.Mutex
	rng   *rand.Rand
	tails []*jetlog.Tail
	// held, if set, is what half of the sessions that are to be read wait for.
	held chan struct{}
}

var errShaken = errors.New("shaken")

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// fails reports whether something that happens once in n times happens now.
func (l *shaky) fails(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.well.Load() && l.rng.IntN(n) == 0
}

func (l *shaky) Tail(
	ctx context.Context, partition int, after uint64, opts jetlog.TailOptions,
) (*jetlog.Tail, error) {
	if l.fails(5) {
		return nil, errShaken
	}
	tail, err := l.Log.Tail(ctx, partition, after, opts)
	if err == nil {
		l.mu.Lock()
		l.tails = append(l.tails, tail)
		l.mu.Unlock()
	}
	return tail, err
}

// breakOne closes a tail under its reader, one of so many that which chooses.
func (l *shaky) breakOne(which func(n int) int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.tails); n > 0 {
		l.tails[which(n)].Close()
	}
}

func (l *shaky) Durable(ctx context.Context, at events.Position) error {
	if l.fails(200) {
		return errShaken
	}
	return l.Log.Durable(ctx, at)
}

func (l *shaky) Session(ctx context.Context, id string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	if l.fails(10) {
		return func(yield func(events.Recorded, error) bool) { yield(events.Recorded{}, errShaken) }
	}
	return func(yield func(events.Recorded, error) bool) {
		select {
		case <-l.waits():
		case <-ctx.Done():
		}
		l.Log.Session(ctx, id, after, upTo)(yield)
	}
}

// waits returns what a session that is to be read waits for.
func (l *shaky) waits() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil && l.rng.IntN(2) == 0 {
		return l.held
	}
	return closed
}

// hold has sessions wait before they are read, until the returned function is called.
func (l *shaky) hold() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = make(chan struct{})
	return sync.OnceFunc(func() { close(l.held) })
}

func (l *shaky) Still(ctx context.Context, partition int, after, upTo uint64) (bool, error) {
	if l.fails(10) {
		return false, errShaken
	}
	return l.Log.Still(ctx, partition, after, upTo)
}

// scribe writes events of every kind into a few sessions, some of which make no sense.
type scribe struct {
	t        testing.TB
	log      *jetlog.Log
	nc       *nats.Conn
	rng      *rand.Rand
	sessions uint64
	n        uint64
}

func (s *scribe) session() string { return fmt.Sprint("s", s.rng.Uint64N(s.sessions)) }

// request returns the request of a turn, perhaps of one that never began.
func (s *scribe) request() string { return fmt.Sprint("r", s.rng.Uint64N(s.n/s.sessions+2)) }

// fact returns what comes next.
func (s *scribe) fact() events.Fact {
	session := s.session()
	request := s.request()
	id := events.TurnID(session, request)
	text := events.Question{QuestionNeutral: fmt.Sprint("q", s.n%3)}
	answer := events.Answer{AnswerNeutral: fmt.Sprint("a", s.n%3)}
	identity := fmt.Sprint("i", s.rng.IntN(4))
	switch k := s.rng.IntN(100); {
	case k < 12:
		return &events.TurnRecorded{TurnID: id, SessionID: session, RequestID: request, Question: text, Answer: answer}
	case k < 41:
		return &events.TurnStarted{TurnID: id, SessionID: session, RequestID: request, Question: text}
	case k < 42:
		return &events.SessionForked{SessionID: session + "'", RequestID: request, FromSessionID: session,
			Root: session}
	case k < 43:
		return &events.SessionBranched{SessionID: session, ChildSessionID: session + "'", RequestID: request,
			FromSessionID: session, Root: session}
	case k < 45:
		return s.summary(session, request, id)
	case k < 75:
		return &events.TurnFinalized{TurnID: id, SessionID: session, Answer: answer}
	case k < 78:
		return s.extended(session, id)
	case k < 80:
		return &events.SessionLinked{SessionID: session, IdentityID: identity}
	case k < 85:
		again := fmt.Sprint("c", s.n)
		return &events.TurnCorrected{
			TurnID: events.TurnID(session, again), SessionID: session, RequestID: again, ReplacesTurnID: id,
			Question: text, Answer: answer,
		}
	case k < 87:
		return s.redaction(session, id)
	case k < 89:
		return s.prune(session, id)
	case k < 91:
		return &events.SessionReset{SessionID: session, After: events.Position{Seq: s.rng.Uint64N(s.n)}}
	case k < 93:
		return s.description(session, request)
	case k < 94:
		return &events.LinkRefused{SessionID: session, IdentityID: identity, SourceHash: fmt.Sprint(s.n)}
	case k < 95:
		return &events.SessionErased{SessionID: session, ReceiptID: "0-1-abc"}
	case k < 97:
		return &events.IdentityErased{IdentityID: identity, ReceiptID: "0-1-abc"}
	default:
		return &events.ErasureReceipt{ReceiptID: "0-1-abc", SessionID: session, Place: fmt.Sprint("p", s.n)}
	}
}

// extended appends to a half of a turn.
func (s *scribe) extended(session string, turn uuid.UUID) events.Fact {
	x := events.Extension{Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool"}]`)}
	if s.rng.IntN(4) == 0 {
		x.Half = events.HalfQuestion
	}
	return &events.TurnExtended{TurnID: turn, SessionID: session, ExtensionID: fmt.Sprint("e", s.n%5), Extension: x}
}

// prune takes the answer out of a session's first finalized turn, or anything out of a turn that there may not be.
func (s *scribe) prune(sessionID string, turn uuid.UUID) events.Fact {
	state := natstest.Fold(s.t, s.log, sessionID, rules)
	for _, t := range state.Turns {
		if t.Status == session.Finalized {
			turn = t.ID
			break
		}
	}
	c := decide.Prune{SessionID: sessionID, TurnID: turn, PruneID: fmt.Sprint("p", s.n%5),
		Keep: func(m session.Message) json.RawMessage {
			if m.Half == events.HalfAnswer {
				return nil
			}
			return m.Raw
		}}
	if _, refused := c.Refused(state); !refused {
		t := state.Turn(turn)
		var brought []events.Recorded
		for e, err := range s.log.Session(s.t.Context(), sessionID, 0, math.MaxUint64) {
			require.NoError(s.t, err)
			if slices.Contains(t.Sources(), e.Position.Seq) {
				brought = append(brought, e)
			}
		}
		if d := c.On(state, t, session.Messages(t, brought)); len(d.Facts) > 0 {
			return d.Facts[0]
		}
	}
	return &events.TurnPruned{TurnID: turn, SessionID: sessionID, PruneID: "p"}
}

// redaction is of a turn as its session has it, or of a turn that there is not.
func (s *scribe) redaction(session string, turn uuid.UUID) events.Fact {
	state := natstest.Fold(s.t, s.log, session, rules)
	if d := (decide.Redact{TurnID: turn}).On(state); len(d.Facts) > 0 {
		return d.Facts[0]
	}
	return &events.TurnRedacted{TurnID: turn, SessionID: session}
}

// summary is of a session's first turn, or of a turn that there may not be.
func (s *scribe) summary(session, request string, turn uuid.UUID) events.Fact {
	state := natstest.Fold(s.t, s.log, session, rules)
	f := events.SessionSummarized{SessionID: session, RequestID: request, SummaryNeutral: fmt.Sprint("m", s.n%3)}
	for _, t := range state.Turns {
		if state.Shown(t) {
			d := decide.Summarize{ThroughTurnID: t.ID, Summary: f}.On(state)
			if len(d.Facts) > 0 {
				return d.Facts[0]
			}
			break
		}
	}
	f.TurnIDs = []uuid.UUID{turn}
	return &f
}

// description is of a session as it is, or was decided on some state that it never had.
func (s *scribe) description(session, request string) events.Fact {
	title := fmt.Sprint("t", s.n%3)
	state := natstest.Fold(s.t, s.log, session, rules)
	d := decide.Describe{SessionID: session, RequestID: request, Title: &title}.On(state, 0)
	if len(d.Facts) > 0 {
		return d.Facts[0]
	}
	return &events.SessionDescribed{SessionID: session, RequestID: request, Title: title,
		After: events.Position{Seq: s.rng.Uint64N(s.n)}}
}

// write writes so many events, durably or not.
func (s *scribe) write(n int) {
	for range n {
		s.n++
		if s.rng.IntN(25) == 0 {
			s.scribble()
			continue
		}
		a := jetlog.Append{Facts: []events.Fact{s.fact()}}
		if f, whole := a.Facts[0].(*events.TurnRecorded); whole && s.rng.IntN(4) == 0 {
			a.Facts = []events.Fact{&events.SessionLinked{SessionID: f.SessionID, IdentityID: "i0"}, f}
			a.Salt = fmt.Sprint(s.n) // one atomic batch must hold no event twice
		}
		if s.rng.IntN(3) == 0 {
			a.Salt = fmt.Sprint(s.n) // else what was said before is not stored again
		}
		must.Get(s.log.Append(s.t.Context(), a))(s.t)
	}
}

// scribble publishes what is no event, as any client may.
func (s *scribe) scribble() {
	m := nats.NewMsg(events.SessionSubject(s.session()))
	m.Data = []byte(`{"turn_id":"x","n":` + fmt.Sprint(s.n) + `}`)
	if s.rng.IntN(2) == 0 {
		m.Header.Set(events.HeaderType, events.TypeTurnStarted)
	}
	must.Get(s.nc.RequestMsg(m, hang.Limit))(s.t)
}

// readers subscribes to events and to verdicts behind a sequence, until the test ends. Each returns the sequences of
// the next batch.
func readers(t *testing.T, f *follower.Follower, after uint64) map[string]func(context.Context) ([]uint64, error) {
	t.Helper()
	raw, judged := f.Events(0, after, jetlog.TailOptions{}), f.Judged(0, after, 100)
	t.Cleanup(raw.Close)
	t.Cleanup(judged.Close)
	return map[string]func(context.Context) ([]uint64, error){
		"events": func(ctx context.Context) (seqs []uint64, err error) {
			batch, err := raw.Next(ctx)
			for _, m := range batch {
				seqs = append(seqs, m.Position.Seq)
			}
			return seqs, err
		},
		"verdicts": func(ctx context.Context) (seqs []uint64, err error) {
			batch, err := judged.Next(ctx)
			for _, j := range batch {
				seqs = append(seqs, j.Position.Seq)
			}
			return seqs, err
		},
	}
}

// getNothing holds readers to be given nothing for a while.
func getNothing(t *testing.T, read map[string]func(context.Context) ([]uint64, error)) {
	t.Helper()
	for name, next := range read {
		brief, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := next(brief)
		stop()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
	}
}

// getOne holds readers to be given one event.
func getOne(t *testing.T, read map[string]func(context.Context) ([]uint64, error), seq uint64) {
	t.Helper()
	for name, next := range read {
		seqs, err := next(t.Context())
		require.NoError(t, err, name)
		require.Equal(t, []uint64{seq}, seqs, name)
	}
}

// privately judges a partition from its beginning, without a follower.
func privately(t testing.TB, log *jetlog.Log, partition int) (out []projections.Judged) {
	t.Helper()
	head := must.Get(log.Head(t.Context(), partition))(t)
	if head.Seq == 0 {
		return nil
	}
	tail := must.Get(log.Tail(t.Context(), partition, 0, jetlog.TailOptions{}))(t)
	defer tail.Close()
	judge := projections.NewJudge(log, rules, 0)
	for len(out) == 0 || out[len(out)-1].Position.Seq < head.Seq {
		for _, m := range must.Get(tail.Next(t.Context()))(t) {
			j := must.Get(judge.Judge(t.Context(), m.Recorded()))(t)
			j.Continues = m.Continues
			out = append(out, j)
		}
	}
	return out
}

// encoded returns a verdict as bytes, with all that views are shown of it.
func encoded(j projections.Judged) string {
	b, err := json.Marshal(struct {
		projections.Judged
		Description session.Description
		Fork        session.Fork
	}{j, j.Head.Description(), j.Head.Fork()})
	if err != nil {
		panic(err)
	}
	return string(b)
}
