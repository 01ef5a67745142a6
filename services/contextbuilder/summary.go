package contextbuilder

import (
	"slices"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// summarize puts the newest summary into a prompt that stands for turns that the window left out, and for no others of
// the session, and that fits into the tokens that are left. turns are the turns that the prompt may show.
func (*Builder) summarize(
	req services.ContextRequest, p *prompt, state *session.State, turns []*session.Turn, left budget,
) {
	if !req.Summary || len(turns) == 0 || len(p.TurnIDs) == 0 {
		return
	}
	first := slices.IndexFunc(turns, func(t *session.Turn) bool { return t.ID == p.TurnIDs[0] })
	shown := turns[first].Place
	for _, m := range slices.Backward(state.Standing()) {
		if m.Fact == nil || m.FromPlace < turns[0].Place || m.ThroughPlace >= shown {
			continue
		}
		text := []message.Message{summaryMessage(&m, req.Language)}
		if left.tokens > 0 && tokensOf(append(text, p.history...), left.count) > left.tokens {
			continue
		}
		p.summary = &m
		p.Summary = &services.ShownSummary{SummaryID: m.ID, ThroughTurnID: m.Through, Turns: m.Turns}
		return
	}
}

// WholeThrough returns the greatest number of turns from the first on, at most n, after which no tool result follows
// whose call is before.
func WholeThrough(turns []*session.Turn, n int) int {
	links := linksOf(piecesOf(turns, form{lang: services.Neutral}))
	for moved := true; moved; {
		moved = false
		for _, l := range links {
			if l.call < n && l.result >= n {
				n, moved = l.call, true
			}
		}
	}
	return n
}

// MessagesOf returns the messages that a prompt shows for some turns.
func MessagesOf(turns []*session.Turn, lang services.Language) (out []message.Message) {
	for _, t := range turns {
		if !services.Filtered(t) {
			out = appendMessages(out, t, form{lang: lang})
		}
	}
	return out
}

// summaryMessage returns the message that a prompt shows for a summary.
func summaryMessage(m *session.Summary, lang services.Language) message.Message {
	text := m.Fact.SummaryNeutral
	if lang == services.Translated && m.Fact.SummaryTranslated != "" {
		text = m.Fact.SummaryTranslated
	}
	return message.New(message.System, summaryBegins+text)
}

// summaryBegins stands before a summary in a prompt.
const summaryBegins = "Summary of the conversation so far:\n"
