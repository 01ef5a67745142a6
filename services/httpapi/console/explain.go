package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// explainView is the page that explains a turn, or an event of a session.
type explainView struct {
	services.Explanation
	// OfTurn: the event asked a turn's question.
	OfTurn  bool
	Options promptOptions
	// Href is the page of the session that the event stands in, at the event. Back and Forth are the explanations of
	// the events right before and right after; empty if there is none. Here is this page's own address.
	Href, Back, Forth, Here string
	// Slide is the address that takes the number of another event, Form that of the form with the options.
	Slide, Form string
	Messages    []shownMessage
	// Answered is what the turn was answered; Stands says in words why there is no answer to show.
	Answered []shownMessage
	Stands   string
	// Gone: the turn is redacted, so its question is gone, and with it the prompt that asked it.
	Gone bool
	// Had are the turns that are redacted by now, and that the model probably had; Redacted counts all that are.
	Had      []withdrawn
	Redacted int
	// Erased: the event itself is gone from the log, and stood after the Nth of those that are left.
	Erased bool
	// TurnBefore and TurnAfter are the explanations of the turns right before and right after; empty if there is none.
	TurnBefore, TurnAfter string
	// Tokens is how many tokens the prompt has.
	Tokens int
	// Rest is how many messages the page leaves out, BeforeLeft how many of the turns before.
	Rest       int
	Before     []beforeRow
	BeforeLeft int
}

func (v explainView) crumbs() []link { return crumbsOf(v.SessionID) }

// promptOptions are the options that a prompt is asked for with.
type promptOptions struct {
	MaxMessages, MaxTokens       int
	Pending, Translated, Summary bool
}

// beforeRow is a turn before the explained event.
type beforeRow struct {
	services.ExplainedTurn
	Href     string
	Question shownText
	// Withdrawn is set for a turn that is redacted.
	Withdrawn *withdrawn
}

// Bounds of the options of a prompt, and of the turns that the page lists.
const (
	mostTokens     = 10_000_000
	mostBefore     = 150
	mostOfQuestion = 120
)

// explainTurn shows why a turn got its answer.
func (s *surface) explainTurn(ctx context.Context, r *http.Request) (view, error) {
	id, err := turnOf(r)
	if err != nil {
		return view{}, err
	}
	session := r.PathValue("session_id")
	return s.explain(ctx, r, services.ExplainAsk{TurnID: id}, sessionHref(session)+"/turns/"+id.String())
}

// explainEvent shows what a prompt could see at an event of a session: at a position, or by the event's number.
func (s *surface) explainEvent(ctx context.Context, r *http.Request) (view, error) {
	query, form := r.URL.Query(), sessionHref(r.PathValue("session_id"))+"/explain"
	ask := services.ExplainAsk{}
	var err error
	if at := query.Get("at"); at != "" {
		if ask.At, err = events.ParsePosition(at); err != nil || ask.At.Seq == 0 {
			return view{}, invalid("at", "must be a position such as 0:42")
		}
	} else if n := query.Get("n"); n != "" {
		if ask.Nth, err = strconv.Atoi(n); err != nil || ask.Nth < 1 {
			return view{}, invalid("n", "must be the number of an event, from 1 on")
		}
	}
	return s.explain(ctx, r, ask, form)
}

// explain shows an explanation. form is the address of the form with its options.
func (s *surface) explain(
	ctx context.Context, r *http.Request, ask services.ExplainAsk, form string,
) (view, error) {
	ask.SessionID = r.PathValue("session_id")
	wire.CallOf(ctx).SetAttribute("session_id", ask.SessionID)
	if events.ValidID(ask.SessionID) != nil || s.cfg.Explain == nil {
		return view{}, errNothing
	}
	options, err := optionsOf(r.URL.Query())
	if err != nil {
		return view{}, err
	}
	ask.MaxMessages, ask.MaxTokens = options.MaxMessages, options.MaxTokens
	ask.IncludePending, ask.Summary = options.Pending, options.Summary
	if options.Translated {
		ask.Language = services.Translated
	}
	out := explainView{Options: options, Form: form}
	if out.Explanation, err = s.cfg.Explain.Explain(ctx, ask); err != nil {
		return view{}, err
	}
	out.OfTurn = out.TurnID != uuid.Nil
	stands := sessionHref(out.SessionID)
	out.Href, out.Slide = stands+"?at="+out.AsOf, stands+"/explain"
	out.Back = explainHref(out.SessionID, out.Earlier, options)
	out.Forth = explainHref(out.SessionID, out.Later, options)
	out.Here = explainHref(out.SessionID, out.AsOf, options)
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: ask.SessionID, AllTurns: true})
	if err != nil {
		return view{}, err
	}
	if reading.State.Erased != 0 {
		return view{}, services.ErrNoSession
	}
	space := room{roomOfTurns}
	out.fillNeighbours(reading.State, sessionHref(ask.SessionID))
	out.fillBefore(&space, reading.State)
	if err := out.fillWithdrawn(ctx, s, reading.State); err != nil {
		return view{}, err
	}
	out.fillAnswer(&space, reading.State)
	out.fillPrompt(&space, s.cfg.Tokens)
	return view{"explain", "Explanation", out}, nil
}

// optionsOf reads the options of a prompt.
func optionsOf(query url.Values) (o promptOptions, err error) {
	o = promptOptions{
		MaxMessages: services.DefaultMessages,
		Pending:     query.Get("pending") == "true", Summary: query.Get("summary") == "true",
		Translated: query.Get("language") == string(services.Translated),
	}
	if n := query.Get("max_messages"); n != "" {
		if o.MaxMessages, err = strconv.Atoi(n); err != nil || o.MaxMessages < services.LeastMessages {
			return o, invalid("max_messages", "must be a number from 2 on")
		}
		o.MaxMessages = min(o.MaxMessages, services.MostMessages)
	}
	if n := query.Get("max_tokens"); n != "" {
		if o.MaxTokens, err = strconv.Atoi(n); err != nil || o.MaxTokens < 0 {
			return o, invalid("max_tokens", "must be a number, or left out for no bound")
		}
		o.MaxTokens = min(o.MaxTokens, mostTokens)
	}
	return o, nil
}

// Query returns the options as an address has them: those that differ from what is asked for without them.
func (o promptOptions) Query() url.Values {
	q := url.Values{}
	if o.MaxMessages != services.DefaultMessages {
		q.Set("max_messages", strconv.Itoa(o.MaxMessages))
	}
	if o.MaxTokens != 0 {
		q.Set("max_tokens", strconv.Itoa(o.MaxTokens))
	}
	if o.Translated {
		q.Set("language", string(services.Translated))
	}
	for name, set := range map[string]bool{"pending": o.Pending, "summary": o.Summary} {
		if set {
			q.Set(name, "true")
		}
	}
	return q
}

// explainHref returns the address of the explanation at a position; empty for none.
func explainHref(session, position string, options promptOptions) string {
	if position == "" {
		return ""
	}
	q := options.Query()
	q.Set("at", position)
	return sessionHref(session) + "/explain?" + q.Encode()
}

// fillPrompt shows the newest messages of the prompt that the page has room for, and counts the tokens of all.
func (v *explainView) fillPrompt(space *room, count func(string) int) {
	if n := len(v.Prompt.Messages); v.Gone && n > 0 {
		v.Prompt.Messages = v.Prompt.Messages[:n-1] // in place of the question
	}
	for i := len(v.Prompt.Messages) - 1; i >= 0; i-- {
		m := v.Prompt.Messages[i]
		text := m.Text()
		if text == "" {
			text = string(m.JSON())
		}
		tokens := 0
		if count != nil {
			tokens = count(text)
			v.Tokens += tokens
		}
		if v.Rest > 0 {
			continue // counted, and not shown
		}
		if space.left -= frame; space.left < 0 {
			v.Rest = i + 1
			continue
		}
		shown, _ := saidOf(m.Role(), m.JSON()).shown(nil, space)
		shown.Tokens = tokens
		v.Messages = append(v.Messages, shown)
	}
	slices.Reverse(v.Messages)
}

// fillBefore lists the turns before, the newest first, each with the beginning of its question.
func (v *explainView) fillBefore(space *room, state *session.State) {
	v.BeforeLeft = max(len(v.Turns)-mostBefore, 0)
	for _, t := range v.Turns {
		if t.Seen == seenRedacted {
			v.Redacted++
		}
	}
	for _, t := range slices.Backward(v.Turns[v.BeforeLeft:]) {
		row := beforeRow{ExplainedTurn: t, Href: sessionHref(t.SessionID) + "?at=" + t.Position + "#t-" + t.TurnID}
		id, _ := uuid.Parse(t.TurnID) // of the explanation, so it is one
		if turn := state.Turn(id); turn != nil && turn.Question != nil {
			text := turn.Question.QuestionNeutral
			if v.Options.Translated {
				text = cmp.Or(turn.Question.QuestionTranslated, text)
			}
			row.Question = space.take(text, mostOfQuestion)
		}
		v.Before = append(v.Before, row)
	}
}

// fillAnswer shows what the turn was answered.
func (v *explainView) fillAnswer(space *room, state *session.State) {
	turn := state.Turn(v.TurnID)
	switch {
	case turn == nil || turn.Status == session.Redacted:
		v.Stands, v.Gone = "The turn was redacted: its answer is gone.", v.OfTurn
	case turn.Answer == nil:
		v.Stands = "The turn has no answer yet."
	default:
		in := services.Neutral
		if v.Options.Translated {
			in = services.Translated
		}
		v.Answered, _ = messagesOf(&session.Turn{Answer: turn.Answer}, in, space)
	}
}

// fillNeighbours finds the turns right before and right after what is explained, and whether its event is left.
func (v *explainView) fillNeighbours(state *session.State, stands string) {
	v.Erased = !slices.ContainsFunc(v.Events, func(e services.ExplainedEvent) bool { return e.Position == v.AsOf })
	at, _ := events.ParsePosition(v.AsOf) // of the explanation, so it is one
	all := chainsOf(state)
	before := slices.IndexFunc(all, func(c chain) bool {
		if v.OfTurn {
			return c.has(v.TurnID)
		}
		_, _, inherited := state.Origin(c[0], at.Partition)
		return !inherited && session.PlaceOf(c[0]) > at.Seq
	})
	after := before
	switch {
	case before < 0:
		before, after = len(all), len(all)
	case v.OfTurn:
		after++
	}
	href := func(i int) string {
		if i < 0 || i >= len(all) {
			return ""
		}
		to := stands + "/turns/" + all[i][len(all[i])-1].ID.String()
		if q := v.Options.Query(); len(q) > 0 {
			to += "?" + q.Encode()
		}
		return to
	}
	v.TurnBefore, v.TurnAfter = href(before-1), href(after)
}

// then is the time of what is explained.
func (v *explainView) then(state *session.State) time.Time {
	if t := state.Turn(v.TurnID); t != nil {
		return t.CreatedAt
	}
	if len(v.Events) > 0 {
		return v.Events[0].RecordedAt
	}
	return time.Time{}
}

// Words says the options as people would: what the prompt on the page was made with.
func (o promptOptions) Words() string {
	words := []string{"at most " + strconv.Itoa(o.MaxMessages) + " messages of history"}
	if o.MaxTokens != 0 {
		words = append(words, "at most "+strconv.Itoa(o.MaxTokens)+" tokens")
	}
	for _, one := range []struct {
		set bool
		say string
	}{
		{o.Translated, "the translated texts"}, {o.Pending, "questions that have no answer yet"},
		{o.Summary, "a summary of older turns"},
	} {
		if one.set {
			words = append(words, one.say)
		}
	}
	return strings.Join(words, ", ")
}
