package contextbuilder

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// Rewriter turns a message and the turns before it into a query that can be understood without them.
type Rewriter interface {
	Rewrite(ctx context.Context, message string, history []message.Message, memorySnippet string) (string, error)
}

// Config of a Builder. Rewriter and Memory may be nil.
type Config struct {
	SystemPrompt string
	IdleTimeout  time.Duration
	// Blocks: where a request names no window, turns leave it in blocks (blockStart).
	Blocks   bool
	Rewriter Rewriter
	Memory   services.Memory
	// Tokens counts with the model's encoding; an Estimate by default.
	Tokens TokenCounter
	Now    func() time.Time
}

// Sessions reads sessions as they are, and as they were (read.Reader).
type Sessions interface {
	services.SessionReader
	AsOf(ctx context.Context, sessionID string, at services.AsOf, atLeast ...events.Position) (
		services.Reading, time.Time, error)
}

// Builder builds contexts. Safe for concurrent use.
type Builder struct {
	reader Sessions
	cfg    Config
}

var _ services.ContextBuilder = (*Builder)(nil)

// NewBuilder makes a builder; it does no I/O.
func NewBuilder(r Sessions, cfg Config) *Builder {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Tokens = cmp.Or[TokenCounter](cfg.Tokens, Estimate{})
	return &Builder{reader: r, cfg: cfg}
}

// Build returns the messages to send to a model. It reads the history before anything else. An unknown session has no
// history, and Build does not create the session.
func (b *Builder) Build(ctx context.Context, req services.ContextRequest) (services.Context, error) {
	p := &prompt{}
	err := services.Measure(ctx, "prompt", func(ctx context.Context) (err error) {
		if err = b.Valid(req); err != nil {
			return err
		}
		req.SystemPrompt = cmp.Or(req.SystemPrompt, b.cfg.SystemPrompt)
		if req.Append, err = uncompactedAll(ctx, req.Append, req); err != nil {
			return err
		}
		read, err := b.history(ctx, req)
		if err != nil {
			return err
		}
		p = read
		p.HistoryMessages = len(p.history)
		return b.assemble(ctx, req, p)
	})
	return p.Context, err
}

// prompt is a context under construction, with what was taken from history.
type prompt struct {
	services.Context
	history []message.Message
	// identity that the session is linked to. The memory of a session without one has its turns after memoryAfter.
	identity    string
	memoryAfter uint64
	// summary of turns that the window left out; nil if there is none.
	summary *session.Summary
}

// of sets what the memory is asked by. over: the session has expired or was erased, and no turn of it may be shown.
func (p *prompt) of(s *session.State, now time.Time) (over bool) {
	p.identity, p.memoryAfter = s.Identity, s.OwnBoundary()
	if over = s.Expired(now) || s.Erased != 0; over {
		p.memoryAfter = math.MaxUint64
	}
	return over
}

// Valid returns the *decide.Invalid that Build would return for a request, or nil.
func (*Builder) Valid(r services.ContextRequest) error {
	switch {
	case events.ValidID(r.SessionID) != nil:
		return &decide.Invalid{Field: "session_id", Why: events.ErrID.Error()}
	case r.Message == "" && !r.Through:
		return &decide.Invalid{Field: "message", Why: "is required"}
	case r.MaxMessages != 0 && r.MaxMessages < services.LeastMessages:
		return &decide.Invalid{Field: "max_messages", Why: "must be at least 2, a question and its answer"}
	case r.MaxTokens < 0:
		return &decide.Invalid{Field: "max_tokens", Why: "must not be negative"}
	case r.Language != "" && r.Language != services.Neutral && r.Language != services.Translated:
		return &decide.Invalid{Field: "language", Why: "must be neutral or translated"}
	case r.Format != "" && r.Format != services.OpenAI && r.Format != services.Anthropic:
		return &decide.Invalid{Field: "format", Why: "must be openai or anthropic"}
	default:
		return nil
	}
}

// history returns the previous messages, oldest first.
func (b *Builder) history(ctx context.Context, req services.ContextRequest) (*prompt, error) {
	if req.History != nil {
		messages, warnings := cleanHistory(req.History, b.budget(req))
		c := services.Context{Source: services.FromRequest, Warnings: warnings, HistoryTurns: exchanges(messages)}
		return &prompt{Context: c, history: messages}, nil
	}
	// A finalized turn shows at least two messages, so half as many turns as messages are enough, with one more for
	// the turn that is being answered. Where items were deleted or a model's filter left nothing, turns show fewer,
	// and the window may have room for turns that were not read. If a call in the window lacks its result, or a result
	// its call, the other half may be in another turn. In both cases all turns at hand are read, and in the end the
	// log.
	messages := b.budget(req).messages
	first := messages/2 + 2
	if req.IncludePending {
		first = messages + 2 // a turn without an answer is one message
	}
	var p *prompt
	var err error
	for _, ask := range []services.Ask{{Shown: first}, {Shown: services.MostMessages}, {AllTurns: true}} {
		var whole bool
		if p, whole, err = b.recall(ctx, req, ask); err != nil || whole {
			break
		}
	}
	if err == nil && req.Summary && p.DroppedTurns > 0 && p.Source != services.FromLog {
		// Only the log has summaries. The turns are taken from the same reading, so that the summary fits them.
		p, _, err = b.recall(ctx, req, services.Ask{AllTurns: true})
	}
	return p, err
}

// recall returns the previous messages from at least as many turns as ask wants. whole is false if the window may need
// turns that were not read.
func (b *Builder) recall(
	ctx context.Context, req services.ContextRequest, ask services.Ask,
) (p *prompt, whole bool, err error) {
	reading, now, err := b.read(ctx, req, ask)
	if err != nil {
		return nil, false, err
	}
	state := reading.State
	p = &prompt{}
	p.SessionFound, p.Position, p.Source = state.Found() && state.Erased == 0, reading.Position, reading.Source
	p.Position.Seq = max(p.Position.Seq, state.Applied) // a reading may have more than it promises
	p.Others = reading.Others
	if p.of(state, now) {
		return p, true, nil
	}
	turns, n := asked(req, reading, b.idle(req), now)
	if turns, err = compacted(ctx, turns, req); err != nil {
		return nil, false, err
	}
	bound := b.budget(req)
	bound.before = n.shown + n.filtered - len(turns)
	pieces := piecesOf(asSent(turns, req), form{lang: req.Language, items: req.Through})
	if last := len(pieces) - 1; req.Through && last >= 0 && pieces[last].turn.ID == req.TurnID {
		bound.beside(req, pieces[last].messages)
	}
	taken, all := p.show(pieces, bound)
	if p.HistoryTurns = len(taken); !all {
		p.DroppedTurns = max(n.shown-len(taken), 0)
	}
	places := make([]uint64, 0, len(p.history))
	p.TurnIDs = make([]uuid.UUID, len(taken))
	for i, t := range taken {
		p.TurnIDs[i] = t.turn.ID
		for range t.messages {
			places = append(places, t.turn.Place)
		}
	}
	atHand := reading.Source == services.FromLog || state.Whole
	room := !atHand && all && n.shown-n.silent > len(turns)
	calls, results := message.LooseEnds(p.history)
	if len(calls)+len(results) == 0 {
		b.summarize(req, p, state, turns, bound)
		return p, !room, nil
	}
	mend(p.history, places, calls, results, unseen(reading, turns))
	b.summarize(req, p, state, turns, bound)
	whole = atHand || len(results) == 0 && endsWith(state, places[calls[0].At])
	return p, whole && !room, nil
}

// show takes the pieces of a window for the prompt's history. A last pair for which the model has no room is let go:
// the model would refuse it in every prompt.
func (p *prompt) show(pieces []piece, b budget) (taken []piece, all bool) {
	w := window(pieces, b)
	p.history = make([]message.Message, 0, 2*len(w.taken)+besides)
	for _, t := range w.taken {
		p.history = append(p.history, t.messages...)
	}
	if !w.over {
		return w.taken, w.all
	}
	warning := fit(p.history, b)
	if b.keep == keepLastPair && b.room > 0 && tokensOf(p.history, b.count) > b.room {
		b.keep = keepNothing
		return p.show(pieces, b)
	}
	if warning != "" {
		p.Warnings = append(p.Warnings, warning)
	}
	return w.taken, w.all
}

func (b *Builder) budget(req services.ContextRequest) budget {
	out := budget{
		messages: min(cmp.Or(req.MaxMessages, services.DefaultMessages), services.MostMessages), tokens: req.MaxTokens,
		blocks: b.blocks(req) && req.MaxMessages == 0 && req.MaxTokens == 0,
		keep:   keepLastPair, count: b.cfg.Tokens.Count,
	}
	if req.Through {
		out.keep = keepNothing
		if req.TurnID != uuid.Nil {
			out.keep = keepNewest
		}
	}
	if req.Truncate && req.MaxPrompt > 0 {
		rest := append(systemMessage(req), appended(req)...)
		if !req.Through {
			rest = append(rest, message.New(message.User, req.Message))
		}
		out.room = max(1, req.MaxPrompt-tokensOf(rest, out.count)) // 0 would be no bound
		out.tokens = min(cmp.Or(out.tokens, out.room), out.room)
	}
	return out
}

// beside makes the bounds of a request those of what stands before the turn that it ends with.
func (b *budget) beside(req services.ContextRequest, own []message.Message) {
	b.messages += len(own)
	if req.MaxTokens > 0 {
		b.tokens = req.MaxTokens + tokensOf(own, b.count)
		if b.room > 0 {
			b.tokens = min(b.tokens, b.room)
		}
	}
}

// systemMessage returns the message that a prompt begins with, if the request has one.
func systemMessage(req services.ContextRequest) []message.Message {
	if req.SystemPrompt == "" {
		return nil
	}
	return []message.Message{message.New(message.System, req.SystemPrompt)}
}

// appended returns the messages that the request wants behind the history.
func appended(req services.ContextRequest) []message.Message {
	return message.ParseAll(req.Append)
}

// asSent returns turns with the messages that the model gets in the place of those that one of them keeps.
func asSent(turns []*session.Turn, req services.ContextRequest) []*session.Turn {
	n := slices.IndexFunc(turns, func(t *session.Turn) bool { return t.ID == req.TurnID })
	if len(req.Sent) == 0 || n < 0 {
		return turns
	}
	own := *turns[n]
	if own.Question != nil {
		q := *own.Question
		q.QuestionMessages = exchanged(q.QuestionMessages, req.Sent)
		own.Question = &q
	}
	if own.Answer != nil {
		a := *own.Answer
		a.AnswerMessages = exchanged(a.AnswerMessages, req.Sent)
		own.Answer = &a
	}
	turns = slices.Clone(turns)
	turns[n] = &own
	return turns
}

// exchanged returns a list of messages with others in the place of some.
func exchanged(list json.RawMessage, others map[string]json.RawMessage) json.RawMessage {
	var all []json.RawMessage
	if json.Unmarshal(list, &all) != nil || all == nil {
		return list
	}
	for i, raw := range all {
		if other, has := others[string(raw)]; has {
			all[i] = other
		}
	}
	raw, _ := events.JSON(all) // it came from JSON
	return raw
}

func (b *Builder) idle(req services.ContextRequest) time.Duration {
	if req.IdleTimeout != nil {
		return *req.IdleTimeout
	}
	return b.cfg.IdleTimeout
}

// read returns the session with at least as many turns as ask wants, and the time for which the prompt is built.
func (b *Builder) read(
	ctx context.Context, req services.ContextRequest, ask services.Ask,
) (services.Reading, time.Time, error) {
	if req.AsOf != nil {
		return b.reader.AsOf(ctx, req.SessionID, *req.AsOf, req.MinPosition...)
	}
	ask.SessionID, ask.Pending = req.SessionID, req.IncludePending
	ask.MinPosition, ask.KnownSeq = req.MinPosition, req.KnownSeq
	reading, err := b.reader.Read(ctx, ask)
	if err == nil && req.TurnID != uuid.Nil && !reading.State.Whole && !isNewest(reading.State, req.TurnID) {
		ask.AllTurns = true
		reading, err = b.reader.Read(ctx, ask)
	}
	return reading, b.cfg.Now(), err
}

// isNewest reports whether a turn is the newest one held. If it is, the turns before it are at hand.
func isNewest(s *session.State, id uuid.UUID) bool {
	return len(s.Turns) > 0 && s.Turns[len(s.Turns)-1].ID == id
}

// turnOf finds a turn among the session's turns and its tombstones, or returns nil.
func turnOf(r services.Reading, id uuid.UUID) *session.Turn {
	if t := r.State.Turn(id); t != nil {
		return t
	}
	for _, t := range r.RedactedLater {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// counts are numbers of turns, in a session up to the turn that is being answered.
type counts struct {
	// shown are those that the prompt may show, with those before a silence and those that the reading does not hold.
	shown int
	// silent are those of them that stand before the last long silence, if that is among the turns that are held.
	silent int
	// filtered are those that are held and of which a model's filter left nothing. Filtered turns that are not held
	// count as shown, so that only the sum of both is the same for every source of a reading.
	filtered int
}

// asked returns the turns that the prompt may show: those after the last long silence. Any question ends a silence,
// also one without an answer and the one that is being answered.
func asked(
	req services.ContextRequest, r services.Reading, idle time.Duration, now time.Time,
) (turns []*session.Turn, n counts) {
	s, until := r.State, ^uint64(0)
	if t := turnOf(r, req.TurnID); req.TurnID != uuid.Nil && t != nil {
		until, now = t.Place, t.CreatedAt
		if req.Through {
			until++
		}
	}
	wanted := func(t *session.Turn) bool { return t.Status == session.Finalized || req.IncludePending }
	// Turns that are not held are older than all turns that are held.
	n.shown = s.ShownFinalized
	if req.IncludePending {
		n.shown += s.ShownPending
	}
	before := make([]*session.Turn, 0, len(s.Turns))
	held := 0
	for _, t := range s.Turns {
		switch {
		case !s.Shown(t):
		case t.Place < until:
			before = append(before, t)
			if wanted(t) {
				held++
			}
		case wanted(t):
			n.shown--
		}
	}
	if s.Whole || r.Source == services.FromLog {
		n.shown = held
	}
	recent := len(before) - len(sinceSilence(before, idle, now))
	turns = make([]*session.Turn, 0, len(before)-recent)
	for i, t := range before {
		switch {
		case !wanted(t):
		case services.Filtered(t) && t.ID != req.TurnID:
			n.filtered++
		case i >= recent:
			turns = append(turns, t)
		}
	}
	if n.shown -= n.filtered; recent > 0 {
		n.silent = n.shown - len(turns)
	}
	return turns, n
}
