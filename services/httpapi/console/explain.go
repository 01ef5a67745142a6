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
	Messages            []message
	// Rest is how many messages the page leaves out, BeforeLeft how many of the turns before.
	Rest       int
	Before     []beforeRow
	BeforeLeft int
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
	out.Href = sessionHref(out.SessionID)
	out.fill()
	return view{"explain", "Explanation of a turn", out}, nil
}

// fill fills in what the page has room for: the newest messages and turns.
func (v *explainView) fill() {
	space := room{roomOfTurns}
	for i := len(v.Prompt.Messages) - 1; i >= 0; i-- {
		m := v.Prompt.Messages[i]
		if space.left -= frame; space.left < 0 {
			v.Rest = i + 1
			break
		}
		text := m.Text()
		if text == "" {
			text = string(m.JSON())
		}
		v.Messages = append(v.Messages, message{
			Role: space.take(m.Role(), mostName).Text, shownText: space.take(text, mostText),
		})
	}
	slices.Reverse(v.Messages)
	v.BeforeLeft = max(len(v.Turns)-mostBefore, 0)
	for _, t := range v.Turns[v.BeforeLeft:] {
		v.Before = append(v.Before, beforeRow{t, sessionHref(t.SessionID) + "?at=" + t.Position})
	}
}
