package console

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// redaction is what the log keeps of a turn's redaction: when it was recorded, who asked for it, and why.
type redaction struct {
	Position, Reason, By string
	At                   time.Time
	// Href is the address of its event, Receipt that of its receipt; empty for callers who may not see them.
	Href, Receipt string
}

// redactionOf returns the redaction that an event is. A reason is no text of a turn, and the log keeps it for ever.
func redactionOf(row eventRow) redaction {
	var body struct {
		Reason string `json:"reason"`
		By     string `json:"redacted_by"`
	}
	_ = json.Unmarshal(row.data, &body) // what the log's reader prints is JSON
	space := room{2 * mostReason}
	return redaction{
		Position: row.Position, At: row.Recorded, Href: row.Permalink,
		Reason: space.take(body.Reason, mostReason).Text, By: space.take(body.By, mostReason).Text,
	}
}

// mostReason bounds a reason, and who gave it, in bytes of HTML.
const mostReason = 600

// redactedType is the type of a redaction as pages show it.
const redactedType = "turn.redacted.v1"

// redactions returns the redactions of a session's turns, by their positions.
func (s *surface) redactions(ctx context.Context, session string) (map[string]redaction, error) {
	list := map[string]redaction{}
	q := services.EventQuery{SessionID: session, Types: []string{events.TypeTurnRedacted}}
	err := s.read(ctx, q, func(e services.Event) (bool, error) {
		row, err := rowOf(e.JSON)
		if err == nil {
			list[row.Position] = s.withReceipt(ctx, redactionOf(row))
		}
		return true, err
	})
	return list, err
}

// withReceipt adds the address of the receipt, for callers who may see receipts.
func (s *surface) withReceipt(ctx context.Context, r redaction) redaction {
	if s.seesReceipts(ctx) {
		r.Receipt = receiptHref(r.Position)
	}
	return r
}

// seesReceipts reports whether the caller may see the pages of receipts.
func (s *surface) seesReceipts(ctx context.Context) bool {
	return s.cfg.Receipts != nil && s.allows(ctx, access.TurnsRedact) && wire.CallOf(ctx).Caller.IdentityID == ""
}

// withdrawn is a turn before an explained one that is redacted by now.
type withdrawn struct {
	redaction
	Turn string // the position of its question
	// Later: the redaction came after what is explained. Had: the model probably had the turn.
	Later, Had bool
	// Unless says why the model did not have the turn although it was not redacted yet.
	Unless string
}

// fillWithdrawn says of each redacted turn before whether the redaction came before what is explained. The prompt on
// the page lacks the turn in either case, and the prompt that was sent lacked it in one of them only.
func (v *explainView) fillWithdrawn(ctx context.Context, s *surface, state *conversation.State) error {
	asked, err := events.ParsePosition(v.AsOf)
	if err != nil {
		return err
	}
	known := map[string]map[string]redaction{}
	unless := ""
	for i := range v.Before {
		row := &v.Before[i]
		switch row.Seen {
		case seenWindow:
			unless = "the window would have left it out"
		case seenBoundary:
			unless = "it stood before a reset or a silence"
		}
		id, _ := uuid.Parse(row.TurnID) // of the explanation, so it is one
		t := state.Turn(id)
		if t == nil || t.Redacted == 0 || row.Seen != seenRedacted {
			continue
		}
		if known[row.SessionID] == nil {
			if known[row.SessionID], err = s.redactions(ctx, row.SessionID); err != nil {
				return err
			}
		}
		w := withdrawnOf(t, known[row.SessionID], row.Position, asked, v.then(state))
		if w.Unless == "" {
			w.Unless = unless
		}
		w.Had = w.Later && w.Unless == ""
		row.Withdrawn = &w
		if w.Had {
			v.Had = append(v.Had, w)
		}
	}
	return nil
}

// withdrawnOf compares the redaction of a turn with the event that is explained: by their places in one partition, or
// else by their times.
func withdrawnOf(
	t *conversation.Turn, known map[string]redaction, at string, asked events.Position, then time.Time,
) withdrawn {
	started, _ := events.ParsePosition(at) // of the explanation, so it is one
	here := events.Position{Partition: started.Partition, Seq: t.Redacted}
	w := withdrawn{redaction: known[here.String()], Turn: at}
	if w.Position == "" {
		w.Position, w.At = here.String(), t.DeletedAt
	}
	after := func(seq uint64, when time.Time) bool {
		if started.Partition == asked.Partition {
			return seq > asked.Seq
		}
		return when.After(then)
	}
	w.Later = after(t.Redacted, w.At)
	switch {
	case t.StatusBefore == conversation.Pending || after(t.Final, t.FinalizedAt):
		w.Unless = "it had no answer yet"
	case t.StatusBefore == conversation.Replaced:
		w.Unless = "a correction of it may have stood in its place"
	}
	return w
}

// Values of services.ExplainedTurn.Seen that the page tells apart.
const (
	seenWindow   = "left out by the window"
	seenBoundary = "before a reset or a silence"
	seenRedacted = "redacted"
)
