package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
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
func (v *explainView) fillWithdrawn(ctx context.Context, s *surface, state *session.State) error {
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
	t *session.Turn, known map[string]redaction, at string, asked events.Position, then time.Time,
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
	case t.StatusBefore == session.Pending || after(t.Final, t.FinalizedAt):
		w.Unless = "it had no answer yet"
	case t.StatusBefore == session.Replaced:
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

// mostErased bounds the sessions that the receipt of an identity names.
const mostErased = 200

// erasedSessions names the sessions that were erased with an identity, to callers who may read the log: the log keeps
// that they were closed.
func (s *surface) erasedSessions(ctx context.Context, out *receiptView) error {
	r := out.Receipt
	if r.SessionID != "" || r.IdentityID == "" || s.cfg.Events == nil || !s.allows(ctx, access.EventsRead) {
		return nil
	}
	q := services.EventQuery{
		IdentityID: r.IdentityID, Types: []string{events.TypeSessionErased},
		Since: r.RequestedAt.Add(-time.Minute), // clocks of two partitions may differ
	}
	return s.read(ctx, q, func(e services.Event) (bool, error) {
		row, err := rowOf(e.JSON)
		if err != nil || row.Receipt != receiptHref(r.ID) {
			return err == nil, err
		}
		if out.Count++; out.Count <= mostErased {
			out.Sessions = append(out.Sessions, link{row.Session, logHref("session_id", row.Session)})
		}
		return true, nil
	})
}

// logHref returns the address of the log by one filter.
func logHref(filter, value string) string {
	return root + "/log?" + url.Values{filter: {value}}.Encode()
}

// placeRow is a place of a receipt, in words.
type placeRow struct {
	services.ReceiptPlace
	Words string
	// Count is how much was erased there, in Units; empty if it was not counted.
	Count, Units string
}

// Rows are the places of the receipt. The log counts events; a view counts the turns of a session, or the sessions of
// an identity.
func (v receiptView) Rows() (list []placeRow) {
	for _, p := range v.Receipt.Places {
		row, unit := placeRow{ReceiptPlace: p, Words: v.Words[p.Place]}, "turn"
		switch {
		case p.Place == "log":
			unit = "event"
		case v.Receipt.SessionID == "":
			unit = "session"
		}
		if p.Erased != nil {
			row.Count, row.Units, _ = strings.Cut(counted(*p.Erased, unit), " ")
		}
		list = append(list, row)
	}
	return list
}

// What says what the receipt is of.
func (v receiptView) What() string {
	switch {
	case v.Receipt.TurnID != "":
		return "turn"
	case v.Receipt.SessionID != "":
		return "session"
	default:
		return "identity"
	}
}

// erasedError is the absence of an erased session, with the position of its erasure, which is the id of a receipt.
type erasedError struct{ at events.Position }

func (*erasedError) Error() string { return "the session was erased" }
func (*erasedError) Unwrap() error { return services.ErrNoSession }

// Bounds of what the page of an identity's erasure looks through, and of the sessions that it names.
const (
	mostPages  = 5
	listAtOnce = 200
	mostNamed  = 5
)

// aboutIdentity says what the erasure of an identity will take: how many sessions and turns, and of which time. It
// warns where nothing is known of the identity, since that may be a slip of the hand.
func (s *surface) aboutIdentity(ctx context.Context, r *http.Request, out *actView) error {
	id := r.PathValue("identity_id")
	if events.ValidID(id) != nil {
		return errNothing
	}
	out.Back = root + "/" + sessionFilter{Identity: id}.query("")
	if s.cfg.Erased != nil {
		gone, err := s.cfg.Erased.IdentityErasedNow(ctx, id)
		if err != nil {
			return err
		}
		if gone != nil {
			out.Warn = "This identity is erased already."
			out.More = &link{"Its receipt", receiptHref(gone.ReceiptID)}
			return nil
		}
	}
	if s.cfg.Lists == nil || !s.allows(ctx, access.ContextRead|access.EventsRead) {
		out.Warn = "This process or this key can't list the identity's sessions, so the page does not " +
			"know how many it has."
		return nil
	}
	return s.countIdentity(ctx, id, out)
}

func (s *surface) countIdentity(ctx context.Context, id string, out *actView) error {
	ask := services.SessionsAsk{}
	ask.IdentityID, ask.Limit = id, listAtOnce
	var names []string
	var first, last time.Time
	sessions, turns, more := 0, 0, ""
	for range mostPages {
		page, err := s.cfg.Lists.Sessions(ctx, ask)
		if err != nil {
			out.Warn = "The audit tables do not answer, so the page does not know how many sessions the identity has."
			wire.CallOf(ctx).Failed(err)
			return nil
		}
		for _, one := range page.Sessions {
			sessions, turns = sessions+1, turns+one.Finalized+one.Pending
			if len(names) < mostNamed {
				names = append(names, one.SessionID)
			}
			if first.IsZero() || one.CreatedAt.Before(first) {
				first = one.CreatedAt
			}
			if one.LastActive.After(last) {
				last = one.LastActive
			}
		}
		if ask.Cursor = page.NextCursor; ask.Cursor == "" {
			break
		}
		more = "at least "
	}
	if ask.Cursor == "" {
		more = ""
	}
	if sessions == 0 {
		out.Warn = "Nothing is linked to " + id + ": no session names this identity. See whether the id is right. " +
			"The erasure would be recorded all the same, and would close each session that is linked to it later."
		return nil
	}
	out.Names = append(out.Names, named{"Erases", more + counted(sessions, "session") + " with " +
		counted(turns, "turn") + ", from " + shownTime(first) + " to " + shownTime(last)})
	if rest := sessions - len(names); rest > 0 {
		names = append(names, "and "+strconv.Itoa(rest)+" more")
	}
	out.Names = append(out.Names, named{"Sessions", strings.Join(names, ", ")})
	return nil
}
