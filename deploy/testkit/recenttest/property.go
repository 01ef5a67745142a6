package recenttest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// randomly compares a view with the reference over random logs and random delivery: from any sequence, in any batches,
// with crashes, redelivery, fenced rivals and parked events in between.
func randomly(t *testing.T, open Open) {
	rapid.Check(t, func(rt *rapid.T) {
		log, now := drawLog(rt)
		few := recent.Limits{TTL: ttl, MaxTurns: 4}
		start := uint64(rapid.IntRange(0, len(log.Events)/2).Draw(rt, "start"))
		d := &delivery{rt: rt, log: log, view: open(t, few, rules), want: map[string]*reference{}, start: start}
		for _, s := range sessions {
			d.want[s] = newReference(s, rules, few, now)
		}
		for _, e := range log.Events[:start] {
			d.each(e, (*reference).before)
		}
		d.feed = NewFeed(rt, log, d.view, start)
		d.run()
	})
}

// delivery brings a log to a view and the references of its sessions.
type delivery struct {
	rt    *rapid.T
	log   *Log
	view  View
	feed  *Feed
	want  map[string]*reference
	start uint64
}

func (d *delivery) run() {
	ways := []string{"apply", "apply", "apply", "crash", "redeliver", "rival", "park", "retry"}
	for int(d.feed.At.Seq) < len(d.log.Events) {
		n := rapid.IntRange(1, 6).Draw(d.rt, "batch")
		switch rapid.SampledFrom(ways).Draw(d.rt, "delivery") {
		case "apply":
			d.next(n, (*reference).apply, func() { d.feed.Apply(d.feed.Batch(n)) })
		case "crash":
			d.feed.Claim(d.start)
		case "redeliver":
			back := uint64(rapid.IntRange(0, int(d.feed.At.Seq)).Draw(d.rt, "back"))
			d.next(n, (*reference).apply, func() { d.feed.redeliver(back, n) })
		case "rival":
			d.feed.rival(d.start)
		case "park":
			d.next(1, (*reference).parked, d.feed.Park)
		case "retry":
			d.retry()
		}
		d.compare()
	}
}

// next makes the references and the view take the next events.
func (d *delivery) next(n int, take func(*reference, events.Recorded), deliver func()) {
	from := d.feed.At.Seq
	for _, e := range d.log.Events[from:min(from+uint64(n), uint64(len(d.log.Events)))] {
		d.each(e, take)
	}
	deliver()
}

func (d *delivery) each(e events.Recorded, take func(*reference, events.Recorded)) {
	if r := d.want[e.SessionID]; r != nil {
		take(r, e)
	}
}

func (d *delivery) compare() {
	shown := rapid.IntRange(0, 5).Draw(d.rt, "shown")
	applied := d.feed.At.Position()
	if applied.Seq == d.start {
		applied.Seq = 0 // nothing is applied yet
	}
	for _, s := range sessions {
		for _, n := range []int{-1, shown} {
			snap := must.Get(d.view.Load(d.rt.Context(), s, 0, n))(d.rt)
			require.Equal(d.rt, Plain(d.want[s].load(n)), Plain(snap.State), "session %q, last %d", s, n)
			require.Equal(d.rt, applied, snap.Applied)
		}
	}
}

// redeliver applies a batch that also holds events before the checkpoint.
func (f *Feed) redeliver(back uint64, n int) {
	from := f.At.Seq - min(back, f.At.Seq)
	f.judge = projections.NewJudge(f.log, f.log.rules, from)
	f.Apply(f.judged(f.log.Events[from:min(f.At.Seq+uint64(n), uint64(len(f.log.Events)))]))
}

// rival takes the partition over. After that a batch of the former owner must change nothing.
func (f *Feed) rival(start uint64) {
	late := f.Batch(3)
	f.Claim(start)
	require.ErrorIs(f.t, f.view.Apply(f.t.Context(), late), projections.ErrFenced)
	late.Events, late.Parked = nil, late.Events
	require.ErrorIs(f.t, f.view.Apply(f.t.Context(), late), projections.ErrFenced)
}

var sessions = []string{"one", "zwei & <drei>", "四"}

// drawLog makes a log of good, contradicting and malformed events. It begins up to 60 h ago and advances by seconds and
// whole hours, so that no session expires within minutes of now.
func drawLog(rt *rapid.T) (*Log, time.Time) {
	now := time.Now().UTC()
	hours := rapid.SampledFrom([]int{0, 5, 23, 30, 60}).Draw(rt, "hours")
	at := now.Add(-time.Duration(hours)*time.Hour - 7*time.Minute)
	log := NewLog(rules)
	kinds := rapid.SampledFrom([][]string{allKinds, growing}).Draw(rt, "kinds")
	for range rapid.IntRange(1, 60).Draw(rt, "events") {
		gap := rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1, 11, 25}).Draw(rt, "gap")
		if gap > hours {
			gap = 0
		}
		hours -= gap
		// The recorded time may also stand still or go back.
		ms := rapid.IntRange(-1000, 1000).Draw(rt, "ms")
		at = at.Add(time.Duration(gap)*time.Hour + time.Duration(ms)*time.Millisecond)
		drawEvent(rt, log, kinds, at)
	}
	return log, now
}

var (
	allKinds = []string{
		"turn", "turn", "turn", "turn", "turn", "turn", "start", "start", "start", "answer", "answer", "redact",
		"correct", "correct", "extend", "extend", "extend", "prune", "prune",
		"whole", "whole", "link", "reset", "describe", "fork", "erase", "refused", "garbage", "again", "identity",
	}
	// growing makes few turns, which go on for long.
	growing = []string{
		"turn", "start", "answer", "extend", "extend", "extend", "extend", "extend", "extend", "prune", "correct",
	}
)

func drawEvent(rt *rapid.T, log *Log, kinds []string, at time.Time) {
	session := rapid.SampledFrom(sessions).Draw(rt, "session")
	s := log.State(session)
	request := func() string { return fmt.Sprintf("r%d", rapid.IntRange(0, 9).Draw(rt, "request")) }
	fresh := fmt.Sprintf("n%d", len(log.Events))
	switch rapid.SampledFrom(kinds).Draw(rt, "event") {
	case "turn":
		log.Append(rt, started(rt, session, fresh), at)
		log.Append(rt, answered(rt, session, fresh), at)
	case "whole":
		log.Append(rt, recorded(rt, session, request()), at)
	case "start":
		log.Append(rt, started(rt, session, request()), at)
	case "answer":
		log.Append(rt, answered(rt, session, request()), at)
	case "extend":
		log.Append(rt, drawExtension(rt, s, fresh), at)
	case "prune":
		drawPrune(rt, log, s, at)
	case "redact":
		drawRedaction(rt, log, s, at)
	case "correct":
		drawCorrection(rt, log, s, fresh, at)
	case "link":
		identity := rapid.SampledFrom([]string{"me", "you"}).Draw(rt, "identity")
		log.Append(rt, &events.SessionLinked{SessionID: session, IdentityID: identity}, at)
	case "reset":
		log.Append(rt, &events.SessionReset{SessionID: session, After: events.Position{Seq: s.Applied}}, at)
	case "describe":
		title := fmt.Sprint("title ", rapid.IntRange(0, 9).Draw(rt, "title"))
		d := decide.Describe{SessionID: session, RequestID: request(), Title: &title,
			Kind: rapid.SampledFrom([]events.SessionKind{"", "", events.KindResponse}).Draw(rt, "kind")}.On(s, 0)
		for _, f := range d.Facts {
			log.Append(rt, f, at)
		}
	case "fork":
		drawFork(rt, log, s, request(), at)
	case "erase":
		if rapid.IntRange(0, 2).Draw(rt, "really") == 0 {
			log.Append(rt, &events.SessionErased{SessionID: session, ReceiptID: "receipt"}, at)
		}
	case "refused":
		log.Append(rt, &events.LinkRefused{SessionID: session, IdentityID: "x"}, at)
	case "garbage":
		log.AppendEnvelope(events.Envelope{Subject: events.SessionSubject(session), Body: []byte("?")}, at)
	case "again":
		if n := len(log.Events); n > 0 {
			e := log.Events[rapid.IntRange(0, n-1).Draw(rt, "again")]
			if e.Fact != nil {
				log.Append(rt, e.Fact, at)
			}
		}
	case "identity":
		log.Append(rt, &events.IdentityErased{IdentityID: "me", ReceiptID: "receipt"}, at)
	}
}

// drawExtension extends a turn, now and then with the text that the answer has.
func drawExtension(rt *rapid.T, s *session.State, fresh string) *events.TurnExtended {
	f := &events.TurnExtended{TurnID: drawTurn(rt, s), SessionID: s.SessionID,
		ExtensionID: rapid.SampledFrom([]string{fresh, "e1", "e2"}).Draw(rt, "extension"),
		Extension:   viewtest.DrawExtension(rt, rapid.String().Draw(rt, "text")),
		Metadata:    metadata.Draw(rt, "metadata"), Settings: settings.Draw(rt, "settings"),
	}
	t := s.Turn(f.TurnID)
	if f.AnswerNeutral != "" && t != nil && t.Answer != nil && rapid.Bool().Draw(rt, "same") {
		f.AnswerNeutral = t.Answer.AnswerNeutral
	}
	return f
}

func drawCorrection(rt *rapid.T, log *Log, s *session.State, request string, at time.Time) {
	old := s.Turn(drawTurn(rt, s))
	if old == nil {
		return
	}
	log.Append(rt, &events.TurnCorrected{
		TurnID: ID(s.SessionID, request), SessionID: s.SessionID, RequestID: request, ReplacesTurnID: old.ID,
		Question: started(rt, s.SessionID, request).Question, Answer: answered(rt, s.SessionID, request).Answer,
	}, at)
}

// drawFork marks a branch of a session, which is one of the others. The branch itself may be missing, or come late.
func drawFork(rt *rapid.T, log *Log, s *session.State, request string, at time.Time) {
	child := rapid.SampledFrom(sessions).Draw(rt, "branch")
	c := decide.ForkSession{SessionID: s.SessionID, RequestID: request, ChildID: child}
	mark, err := c.Mark(s, s.Fork(), events.Position{Seq: s.Applied}, at)
	if err != nil || child == s.SessionID {
		return
	}
	log.Append(rt, mark, at)
	if rapid.Bool().Draw(rt, "forked") {
		log.Append(rt, mark.Fork(), at)
	}
}

// drawPrune takes a message out of a turn.
func drawPrune(rt *rapid.T, log *Log, s *session.State, at time.Time) {
	all := log.Session(rt.Context(), s.SessionID, 0, uint64(len(log.Events)))
	for _, f := range viewtest.DrawPrune(rt, s, all, drawTurn(rt, s)) {
		log.Append(rt, f, at)
	}
}

// drawRedaction redacts some version of a turn. The redaction carries the tombstones, or lacks them: a foreign
// publisher may leave them out.
func drawRedaction(rt *rapid.T, log *Log, s *session.State, at time.Time) {
	id := drawTurn(rt, s)
	d := decide.Redact{TurnID: id}.On(s)
	if len(d.Facts) == 1 && rapid.Bool().Draw(rt, "tombstones") {
		log.Append(rt, d.Facts[0], at)
		return
	}
	log.Append(rt, &events.TurnRedacted{TurnID: id, SessionID: s.SessionID}, at)
}

func drawTurn(rt *rapid.T, s *session.State) (id [16]byte) {
	if len(s.Turns) == 0 {
		return ID(s.SessionID, "none")
	}
	return s.Turns[rapid.IntRange(0, len(s.Turns)-1).Draw(rt, "turn")].ID
}

var messages = rapid.SampledFrom([]json.RawMessage{
	nil, json.RawMessage("null"), json.RawMessage("[]"),
	json.RawMessage(`[{"role":"user","content":"<b>&\u2028\u0000","n":123456789012345678901234567890.10,"e":1e400}]`),
})

var metadata = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"channel":"web"}`),
	json.RawMessage(`{"channel":"tel","x":[1,{}]}`)})

// settings are those of a question that a model is asked.
var settings = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"model":"m"}`)})

func started(rt *rapid.T, session, request string) *events.TurnStarted {
	text := func(label string) string { return rapid.String().Draw(rt, label) }
	return &events.TurnStarted{TurnID: ID(session, request), SessionID: session, RequestID: request,
		Settings: settings.Draw(rt, "settings"), Question: events.Question{
			PipelineName: rapid.SampledFrom([]string{"", "p"}).Draw(rt, "pipeline"), Repository: text("repository"),
			Consultant: text("consultant"), TranslateChat: rapid.Bool().Draw(rt, "translate"),
			QuestionNeutral: text("neutral") + ".", QuestionTranslated: text("translated"),
			QuestionMessages: messages.Draw(rt, "messages"), Metadata: metadata.Draw(rt, "metadata"),
		}}
}

func recorded(rt *rapid.T, session, request string) *events.TurnRecorded {
	q, a := started(rt, session, request), answered(rt, session, request)
	return &events.TurnRecorded{TurnID: q.TurnID, SessionID: session, RequestID: request, Question: q.Question,
		Answer: a.Answer}
}

func answered(rt *rapid.T, session, request string) *events.TurnFinalized {
	text := func(label string) string { return rapid.String().Draw(rt, label) }
	return &events.TurnFinalized{TurnID: ID(session, request), SessionID: session,
		Metadata: metadata.Draw(rt, "metadata"), Answer: events.Answer{
			AnswerNeutral: text("neutral") + ".", AnswerTranslated: text("translated"),
			AnswerTranslatedIsFallback: rapid.Bool().Draw(rt, "fallback"),
			AnswerMessages:             messages.Draw(rt, "messages"),
		}}
}

// reference computes what a view must hold of one session. It folds the whole session, and remembers from which place
// on a view would still have the turns.
type reference struct {
	limits recent.Limits
	now    time.Time

	truth   *session.State
	held    bool
	floor   uint64
	whole   bool
	applied uint64
}

func newReference(sessionID string, rules session.Rules, limits recent.Limits, now time.Time) *reference {
	rules.Slim = false
	return &reference{limits: limits, now: now, truth: session.New(sessionID, rules)}
}

// before folds an event from before the view's beginning.
func (r *reference) before(e events.Recorded) { r.truth.Fold(e) }

// parked folds an event that the view has parked.
func (r *reference) parked(e events.Recorded) {
	r.truth.Fold(e)
	r.held = false
}

// apply folds an event that the view applies.
func (r *reference) apply(e events.Recorded) {
	found := r.truth.Found()
	c := r.truth.Fold(e)
	if !c.Kind.ChangesSession() {
		r.applied = e.Position.Seq
		return
	}
	if !r.young() {
		r.held = false
		return
	}
	if !r.held {
		r.held, r.floor, r.whole = true, e.Position.Seq, !found && r.truth.Found()
	}
	r.applied = e.Position.Seq
	if c.Kind == session.Corrected || c.Kind == session.TurnGone {
		r.whole = false
	}
	if c.Kind.Group() == session.GroupText && c.Turn.Last() == c.Turn.Started {
		r.cap()
	}
}

// cap leaves the newest turns.
func (r *reference) cap() {
	if turns := r.turns(); len(turns) > r.limits.MaxTurns {
		r.floor, r.whole = turns[len(turns)-r.limits.MaxTurns].Place, false
	}
}

// young reports whether the session's last activity, its erasure, or the beginning of a session without activity is no
// longer ago than the TTL.
func (r *reference) young() bool {
	last := r.truth.LastActive
	if last.IsZero() {
		last = r.truth.CreatedAt
	}
	return r.now.Sub(last) <= r.limits.TTL || r.now.Sub(r.truth.ErasedAt) <= r.limits.TTL
}

// restored makes the view hold the whole session from the log.
func (r *reference) restored() {
	r.held = r.young()
	r.floor, r.applied = 0, r.truth.Applied
	r.whole = len(r.turns()) == len(r.truth.Turns)
	r.cap()
}

func (r *reference) turns() []*session.Turn {
	out := []*session.Turn{}
	for _, t := range r.truth.Turns {
		if t.Place >= r.floor && (t.Status == session.Pending || t.Status == session.Finalized) {
			out = append(out, t)
		}
	}
	return out
}

// load returns the state that a Load must return, or nil.
func (r *reference) load(shown int) *session.State {
	if !r.held {
		return nil
	}
	s := *r.truth
	all := r.turns()
	s.Turns, s.Applied = all, r.applied
	for n := range all {
		if shown >= 0 && finalized(all[len(all)-n:]) >= shown {
			s.Turns = all[len(all)-n:]
			break
		}
	}
	s.Whole = r.whole && len(s.Turns) == len(all)
	return &s
}

func finalized(turns []*session.Turn) int {
	return len(slices.DeleteFunc(slices.Clone(turns),
		func(t *session.Turn) bool { return t.Status != session.Finalized }))
}
