package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// explainView is the page that explains a turn.
type explainView struct {
	services.Explanation
	// Href is the page of the session that the turn stands in.
	Href                string
	MaxMessages         int
	Pending, Translated bool
	Messages            []promptMessage
	// Of is how many turns the session has, N which of them this is, and Slide the address that takes another number.
	N, Of int
	Slide string
	// Here is the address of the page without its options, Tokens how many tokens the prompt has.
	Here   string
	Tokens int
	// Rest is how many messages the page leaves out, BeforeLeft how many of the turns before.
	Rest       int
	Before     []beforeRow
	BeforeLeft int
}

// promptMessage is a message of the prompt.
type promptMessage struct {
	message
	Tokens int
}

// beforeRow is a turn before the explained one.
type beforeRow struct {
	services.ExplainedTurn
	Href string
}

// Bounds of the options of a prompt, and of the turns that the page lists.
const (
	defaultMessages = 20
	mostMessages    = 100_000
	mostBefore      = 150
)

// explain shows why a turn got its answer.
func (s *surface) explain(ctx context.Context, r *http.Request) (view, error) {
	session := r.PathValue("session_id")
	wire.CallOf(ctx).SetAttribute("session_id", session)
	id, err := uuid.Parse(r.PathValue("turn_id"))
	if err != nil || events.ValidID(session) != nil || s.cfg.Explain == nil {
		return view{}, errNothing
	}
	query := r.URL.Query()
	out := explainView{
		MaxMessages: defaultMessages, Pending: query.Get("pending") == "true",
		Translated: query.Get("language") == string(services.Translated),
	}
	if n := query.Get("max_messages"); n != "" {
		if out.MaxMessages, err = strconv.Atoi(n); err != nil || out.MaxMessages < 2 {
			return view{}, invalid("max_messages", "must be a number from 2 on")
		}
		out.MaxMessages = min(out.MaxMessages, mostMessages)
	}
	ask := services.ExplainAsk{
		SessionID: session, TurnID: id, MaxMessages: out.MaxMessages, IncludePending: out.Pending,
	}
	if out.Translated {
		ask.Language = services.Translated
	}
	if out.Explanation, err = s.cfg.Explain.Explain(ctx, ask); err != nil {
		return view{}, err
	}
	out.Href, out.Here = sessionHref(out.SessionID), sessionHref(session)+"/turns/"+id.String()
	out.fill(s.cfg.Tokens)
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: session, AllTurns: true})
	if err != nil {
		return view{}, err
	}
	all := chainsOf(reading.State)
	out.N = 1 + slices.IndexFunc(all, func(c chain) bool { return c.has(id) })
	out.Of, out.Slide = len(all), sessionHref(session)+"/explain"
	return view{"explain", "Explanation of a turn", out}, nil
}

// explainNth leads to the explanation of the session's turn with a number, from 1 on.
func (s *surface) explainNth(w http.ResponseWriter, r *http.Request) error {
	session := r.PathValue("session_id")
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil || events.ValidID(session) != nil {
		return errNothing
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Deadline)
	defer cancel()
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: session, AllTurns: true})
	if err != nil {
		return err
	}
	all := chainsOf(reading.State)
	if n < 1 || n > len(all) {
		return errNothing
	}
	versions := all[n-1]
	id := versions[len(versions)-1].ID.String()
	http.Redirect(w, r, sessionHref(session)+"/turns/"+id, http.StatusSeeOther)
	return nil
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
		shown := promptMessage{}
		if count != nil {
			shown.Tokens = count(text)
			v.Tokens += shown.Tokens
		}
		if v.Rest > 0 {
			continue // counted, and not shown
		}
		if space.left -= frame; space.left < 0 {
			v.Rest = i + 1
			continue
		}
		shown.message = message{Role: space.take(m.Role(), mostName).Text, shownText: space.take(text, mostText)}
		v.Messages = append(v.Messages, shown)
	}
	slices.Reverse(v.Messages)
	v.BeforeLeft = max(len(v.Turns)-mostBefore, 0)
	for _, t := range v.Turns[v.BeforeLeft:] {
		v.Before = append(v.Before, beforeRow{t, sessionHref(t.SessionID) + "?at=" + t.Position})
	}
}
