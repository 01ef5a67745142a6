package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
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
	Messages    []message
	// Tokens is how many tokens the prompt has.
	Tokens int
	// Rest is how many messages the page leaves out, BeforeLeft how many of the turns before.
	Rest       int
	Before     []beforeRow
	BeforeLeft int
}

// promptOptions are the options that a prompt is asked for with.
type promptOptions struct {
	MaxMessages, MaxTokens       int
	Pending, Translated, Summary bool
}

// beforeRow is a turn before the explained event.
type beforeRow struct {
	services.ExplainedTurn
	Href string
}

// Bounds of the options of a prompt, and of the turns that the page lists.
const (
	defaultMessages = 20
	mostMessages    = 100_000
	mostTokens      = 10_000_000
	mostBefore      = 150
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
	out.fill(s.cfg.Tokens)
	return view{"explain", "Explanation", out}, nil
}

// optionsOf reads the options of a prompt.
func optionsOf(query url.Values) (o promptOptions, err error) {
	o = promptOptions{
		MaxMessages: defaultMessages, Pending: query.Get("pending") == "true", Summary: query.Get("summary") == "true",
		Translated: query.Get("language") == string(services.Translated),
	}
	if n := query.Get("max_messages"); n != "" {
		if o.MaxMessages, err = strconv.Atoi(n); err != nil || o.MaxMessages < 2 {
			return o, invalid("max_messages", "must be a number from 2 on")
		}
		o.MaxMessages = min(o.MaxMessages, mostMessages)
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
	if o.MaxMessages != defaultMessages {
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

// fill fills in what the page has room for: the newest messages and turns.
func (v *explainView) fill(count func(string) int) {
	space := room{roomOfTurns}
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
		shown, _ := saidOf(m.Role(), m.JSON()).shown(nil, &space)
		shown.Tokens = tokens
		v.Messages = append(v.Messages, shown)
	}
	slices.Reverse(v.Messages)
	v.BeforeLeft = max(len(v.Turns)-mostBefore, 0)
	for _, t := range v.Turns[v.BeforeLeft:] {
		v.Before = append(v.Before, beforeRow{t, sessionHref(t.SessionID) + "?at=" + t.Position + "#t-" + t.TurnID})
	}
}
