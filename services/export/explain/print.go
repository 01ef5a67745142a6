package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events/message"
)

// Print writes the explanation as text for people.
func (x *Explanation) Print(to io.Writer) error {
	var b strings.Builder
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	inherited := ""
	if x.Inherited {
		inherited = ", which the branch shares"
	}
	p("Turn %s of session %s%s\n\nEvents:", x.TurnID, x.SessionID, inherited)
	for _, e := range x.Events {
		note := ""
		switch {
		case e.Problem != "":
			note = "  (without effect: " + e.Problem + ")"
		case e.Redacted:
			note = "  (redacted)"
		case e.Usage != nil:
			note = fmt.Sprintf("  (%d tokens in, %d out)", e.Usage.Input, e.Usage.Output)
		}
		p("  %-8s %s  %s%s", e.Position, e.RecordedAt.Format(time.RFC3339Nano), e.Type, note)
		if len(e.Data) > 0 {
			p("           %s", e.Data)
		}
	}
	p("\nIts prompt, as of %s with today's redactions: %d messages of %d turns, %d left out, then the question.",
		x.AsOf, x.Context.HistoryMessages, x.Context.HistoryTurns, x.Context.DroppedTurns)
	for _, m := range x.Context.Messages {
		p("%s", Message(m))
	}
	if len(x.Turns) > 0 {
		p("\nTurns before it:")
	}
	for _, t := range x.Turns {
		inherited := ""
		if t.Inherited {
			inherited = "  (inherited from " + t.SessionID + ")"
		}
		p("  %-8s %s  %s%s", t.Position, t.TurnID, t.Seen, inherited)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// Message returns a message of a prompt on one line: its role and text, or its JSON if it is more than a text.
func Message(raw json.RawMessage) string {
	var members map[string]json.RawMessage
	if m := message.Parse(raw); json.Unmarshal(raw, &members) == nil && len(members) == 2 && m.Text() != "" {
		return m.Role() + ": " + m.Text()
	}
	return string(raw)
}
