package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// eventsView is the events beside a conversation, in groups.
type eventsView struct {
	Groups []*eventGroup
	// Rest is set if the page has no room for more events.
	Rest bool
}

// eventGroup is the events of one turn, or one event of the session.
type eventGroup struct {
	Label, Anchor string
	First, Last   string
	// Span says how long after a turn's start its answer was recorded, Became what happened to the turn afterwards.
	Span   string
	Became []string
	// Turn is the anchor of the turn's row; empty for an event of the session.
	Turn   string
	Events []eventRow
}

// eventRow is an event.
type eventRow struct {
	Position, Anchor, Type, ID, Session string
	// Identity is set for an event of an identity and of no session, Receipt if the event has one.
	Identity, Receipt string
	Recorded          time.Time
	JSON              shownText
	// Permalink shows the event in its place, AsOf what a prompt saw there, and Whole is all of its JSON.
	Permalink, AsOf, Whole string
	Open                   bool
	at                     events.Position
	cost                   int // bytes of HTML, about
	turn                   uuid.UUID
	data                   json.RawMessage
}

// cloudEvent is an event as the log's reader prints it.
type cloudEvent struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Subject    string          `json:"subject"`
	Position   string          `json:"position"`
	RecordedAt time.Time       `json:"recordedat"`
	Time       string          `json:"time"`
	Data       json.RawMessage `json:"data"`
}

// typePrefix begins the types of all events; pages leave it out.
const typePrefix = "turnledger."

// rowOf returns the row of an event without its JSON.
func rowOf(line []byte) (eventRow, error) {
	var e cloudEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return eventRow{}, err
	}
	// Other publishers may write anything into an envelope.
	names := room{3 * mostName}
	row := eventRow{
		Position: e.Position, Anchor: anchorOf(e.Position),
		Type:    names.take(strings.TrimPrefix(e.Type, typePrefix), mostName).Text,
		ID:      names.take(e.ID, mostName).Text,
		Session: e.Subject, Recorded: e.RecordedAt, data: e.Data,
	}
	if strings.HasPrefix(row.Type, "turn.") {
		id, _, _ := strings.Cut(e.ID, ".")
		row.turn, _ = uuid.Parse(id) // uuid.Nil for an event of another publisher
	}
	row.ofErasure()
	if row.Session != "" {
		row.Permalink = sessionHref(row.Session) + "?at=" + e.Position + "#" + row.Anchor
		row.Whole = sessionHref(row.Session) + "/events/" + e.Position
		row.AsOf = explainHref(row.Session, e.Position, promptOptions{MaxMessages: services.DefaultMessages})
	}
	return row, nil
}

// anchorOf returns the fragment that names an event's row.
func anchorOf(position string) string { return "e-" + strings.ReplaceAll(position, ":", "-") }

// ofErasure fills in what an erasure, or a receipt of one, is about: a session or an identity. Both stand as the
// subject of the event. A receipt has the erasure's id, or the position of the redaction.
func (r *eventRow) ofErasure() {
	var of struct {
		SessionID string `json:"session_id"`
		Identity  string `json:"identity_id"`
		ReceiptID string `json:"receipt_id"`
	}
	switch r.Type {
	case redactedType, strings.TrimPrefix(events.TypeTurnPruned, typePrefix):
		r.Receipt = receiptHref(r.Position)
	case "session.erased.v1", "identity.erased.v1", "erasure.receipt.v1":
		if json.Unmarshal(r.data, &of) != nil || of.ReceiptID == "" {
			return // another publisher's
		}
		r.Receipt = receiptHref(of.ReceiptID)
		if of.SessionID == "" {
			r.Session, r.Identity = "", of.Identity
		}
	}
}

// read calls f with each event that a query selects, until f returns false.
func (s *surface) read(ctx context.Context, q services.EventQuery, f func(services.Event) (bool, error)) error {
	stream, err := s.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		return err
	}
	defer stream.Close()
	return each(ctx, stream, f)
}

// each calls f with each event of a reading, until f returns false.
func each(ctx context.Context, stream services.EventStream, f func(services.Event) (bool, error)) error {
	for {
		batch, err := stream.Next(ctx)
		for _, e := range batch {
			if more, err := f(e); err != nil || !more {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// window is what the events beside a page of turns are chosen by: the places of its turns, the sequences from the first
// turn until the turn after the last, and the sequence after which no event is of the page; 0 if any may be.
type window struct {
	places      map[uint64]bool
	first, next uint64
	last        uint64
}

// windowOf returns the window of the page's own turns; shared turns have their events in their own session.
func (p *sessionPage) windowOf() window {
	w := window{places: map[uint64]bool{}}
	own := func(c chain) bool {
		_, _, inherited := p.reading.State.Origin(c[0], p.reading.Position.Partition)
		return !inherited
	}
	for _, c := range p.shown {
		if own(c) {
			w.places[c[0].Place] = true
			w.last = max(w.last, c.last())
			if w.first == 0 {
				w.first = session.PlaceOf(c[0])
			}
		}
	}
	all := p.all
	if end := p.start + len(p.shown); end < len(all) && own(all[end]) {
		w.next = session.PlaceOf(all[end][0])
		w.last = max(w.last, w.next)
	}
	if w.next == 0 || len(p.reading.State.Branches()) > 0 {
		w.last = 0 // a branch may leave a turn at any later time
	}
	if p.start == 0 {
		w.first = 1 // the events before the first turn, too
	}
	return w
}

// events reads the events beside the page's turns.
func (p *sessionPage) events(ctx context.Context, out *sessionView) error {
	w, state, partition := p.windowOf(), p.reading.State, p.reading.Position.Partition
	out.Events = &eventsView{}
	if w.first == 0 {
		return nil // all turns of the page are shared
	}
	groups, space := map[uint64]*eventGroup{}, room{roomOfEvents}
	q := services.EventQuery{SessionID: state.SessionID}
	if w.first > 1 {
		q.From = []events.Position{{Partition: partition, Seq: w.first - 1}}
	}
	if w.last > 0 {
		q.To = []events.Position{{Partition: partition, Seq: w.last}}
	}
	return p.s.read(ctx, q, func(e services.Event) (bool, error) {
		row, err := rowOf(e.JSON)
		if err != nil {
			return false, err
		}
		p.noteBranch(out, row)
		p.noteRedaction(ctx, out, row)
		row.Open = p.query.Get("at") == row.Position
		var place uint64
		if t := state.Turn(row.turn); row.turn != uuid.Nil && t != nil {
			place = t.Place
		}
		inWindow := e.Position.Seq >= w.first && (w.next == 0 || e.Position.Seq < w.next)
		if !row.Open && (place != 0 && !w.places[place] || place == 0 && !inWindow) {
			return true, nil
		}
		if space.left -= frameOfEvent + 4*len(row.Whole); space.left <= 0 {
			out.Events.Rest = true
			return false, nil
		}
		row.JSON = space.take(indented(e.JSON), mostJSON)
		g := groups[place]
		if g == nil || place == 0 {
			g = &eventGroup{Label: row.Type, First: row.Position, Anchor: row.Anchor}
			if place != 0 {
				g.Label, groups[place] = "turn", g
				if g.Turn = "t-" + row.turn.String(); state.Turn(row.turn).Status == session.Pending {
					g.Span = "no answer yet"
				}
			}
			out.Events.Groups = append(out.Events.Groups, g)
		}
		g.add(row)
		return true, nil
	})
}

// add adds an event to a group.
func (g *eventGroup) add(row eventRow) {
	switch {
	case row.Type == "turn.started.v1", g.Turn == "":
	case row.Type == "turn.recorded.v1" && len(g.Events) == 0:
		g.Span = "recorded with its answer"
	case row.Type == "turn.finalized.v1" && len(g.Events) > 0:
		g.Span = "answered after " + row.Recorded.Sub(g.Events[0].Recorded).Round(time.Millisecond).String()
	default:
		name, _, _ := strings.Cut(strings.TrimPrefix(row.Type, "turn."), ".")
		g.Became = append(g.Became, name)
	}
	g.Last = row.Position
	g.Events = append(g.Events, row)
}

// noteRedaction shows at the tombstones of a turn when, by whom and why it was redacted.
func (p *sessionPage) noteRedaction(ctx context.Context, out *sessionView, row eventRow) {
	if row.Type != redactedType {
		return
	}
	said := p.s.withReceipt(ctx, redactionOf(row))
	for i := range out.Rows {
		id, _ := uuid.Parse(out.Rows[i].ID) // of a turn, so it is one
		t := p.reading.State.Turn(id)
		_, partition, inherited := p.reading.State.Origin(t, p.reading.Position.Partition)
		if !inherited && row.Position == (events.Position{Partition: partition, Seq: t.Redacted}).String() {
			p.room.left -= frame + len(said.Reason) + len(said.By)
			out.Rows[i].Redaction = &said
		}
	}
}

// noteBranch shows a branch at the turn where it leaves.
func (p *sessionPage) noteBranch(out *sessionView, row eventRow) {
	if row.Type != strings.TrimPrefix(events.TypeSessionBranched, typePrefix) {
		return
	}
	var mark struct {
		Child    string `json:"child_session_id"`
		Segments []struct {
			Through string `json:"through_turn_id"`
		} `json:"segments"`
	}
	if json.Unmarshal(row.data, &mark) != nil || len(mark.Segments) == 0 || !p.made[mark.Child] {
		return
	}
	if at := out.row(mark.Segments[len(mark.Segments)-1].Through); at != nil && len(at.Branches) < turnsOnPage {
		at.Branches = append(at.Branches, link{mark.Child, sessionHref(mark.Child)})
	}
}

// wholeEvent answers with the JSON of one event.
func (s *surface) wholeEvent(w http.ResponseWriter, r *http.Request) error {
	at, err := events.ParsePosition(r.PathValue("position"))
	id := r.PathValue("session_id")
	if err != nil || at.Seq == 0 || events.ValidID(id) != nil {
		return errNothing
	}
	var found []byte
	q := services.EventQuery{SessionID: id, To: []events.Position{at}}
	if at.Seq > 1 {
		q.From = []events.Position{{Partition: at.Partition, Seq: at.Seq - 1}}
	}
	err = s.read(r.Context(), q, func(e services.Event) (bool, error) {
		if e.Position == at {
			found = append(found, e.JSON...)
		}
		return found == nil, nil
	})
	switch {
	case errors.Is(err, services.ErrPositionNotReached), err == nil && found == nil:
		return errNothing
	case err != nil:
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(found) // an error means that the client has gone
	return nil
}

// export answers with all events of a session, as GET /v1/events prints them.
func (s *surface) export(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("session_id")
	if events.ValidID(id) != nil {
		return errNothing
	}
	stream, err := s.cfg.Events.OpenEvents(r.Context(), services.EventQuery{SessionID: id})
	if err != nil {
		return err
	}
	defer stream.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", `attachment; filename="session.jsonl"`)
	return each(r.Context(), stream, func(e services.Event) (bool, error) {
		_, err := w.Write(append(e.JSON, '\n'))
		return err == nil, err
	})
}
