package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
)

// eventsOnPage is how many events a page of the log shows.
const eventsOnPage = 50

// logView is a page of the log.
type logView struct {
	// From, Since, Type, Session and Identity are the filter; Types are all types.
	From, Since, Type, Session, Identity string
	Types                                []string
	Rows                                 []eventRow
	// End is where the log ended; Older, Newer and Live are addresses.
	End, Older, Newer, Live string
}

// log shows a page of events from a position or a time on; without either, the newest.
func (s *surface) log(ctx context.Context, r *http.Request) (view, error) {
	if s.cfg.Events == nil {
		return view{}, errNothing
	}
	query := r.URL.Query()
	out := logView{
		From: query.Get("from"), Since: query.Get("since"), Type: query.Get("type"), Session: query.Get("session_id"),
		Identity: query.Get("identity_id"),
	}
	for _, t := range events.Types() {
		out.Types = append(out.Types, strings.TrimPrefix(t, typePrefix))
	}
	q, err := out.query()
	if err != nil {
		return view{}, err
	}
	if out.From == "" && q.Since.IsZero() && !out.filtered() {
		if q.From, err = s.newest(ctx); err != nil {
			return view{}, err
		}
	}
	if err := s.logPage(ctx, q, &out); err != nil {
		return view{}, err
	}
	if out.From == "" && q.Since.IsZero() && !out.filtered() {
		out.Live = liveHref(root+"/log", out.End, nil)
	}
	return view{"log", "Log", out}, nil
}

func (v *logView) filtered() bool { return v.Type != "" || v.Session != "" || v.Identity != "" }

// query returns what the log's port is asked for.
func (v *logView) query() (q services.EventQuery, err error) {
	q = services.EventQuery{SessionID: v.Session, IdentityID: v.Identity}
	if v.Type != "" {
		q.Types = []string{typePrefix + v.Type}
	}
	if q.Since, err = momentOf("since", v.Since); err != nil {
		return q, err
	}
	if v.From != "" {
		if q.From, err = events.ParsePositions(v.From); err != nil {
			return q, invalid("from", "must be a position such as 0:42, or several of different partitions")
		}
	}
	return q, nil
}

// newest returns the positions after which the newest events stand.
func (s *surface) newest(ctx context.Context) ([]events.Position, error) {
	stream, err := s.cfg.Events.OpenEvents(ctx, services.EventQuery{})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return back(stream.End()), nil
}

// back returns the positions a page before a cursor, and at least the beginning of each partition.
func back(c events.Cursor) (list []events.Position) {
	each := uint64(max(eventsOnPage/max(len(c), 1), 1))
	for k, seq := range c {
		list = append(list, events.Position{Partition: k, Seq: seq - min(seq, each)})
	}
	return list
}

// logPage reads the events of a page.
func (s *surface) logPage(ctx context.Context, q services.EventQuery, out *logView) error {
	stream, err := s.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		return err
	}
	defer stream.Close()
	out.End = stream.End().String()
	at, begun, space := maps.Clone(stream.From()), false, room{roomOfEvents}
	for _, seq := range at {
		begun = begun || seq > 0
	}
	if begun && !out.filtered() {
		out.Older = out.address(events.NewCursor(back(at)...))
	}
	return each(ctx, stream, func(e services.Event) (bool, error) {
		row, err := rowOf(e.JSON)
		if err != nil {
			return false, err
		}
		if len(out.Rows) == eventsOnPage || space.left < mostJSON+frameOfEvent {
			out.Newer = out.address(at)
			return false, nil
		}
		space.left -= frameOfEvent + 3*len(row.Whole)
		row.JSON = space.take(indented(e.JSON), mostJSON)
		out.Rows = append(out.Rows, row)
		at.Pass(e.Position)
		return true, nil
	})
}

// address returns the address of the page that begins after a position.
func (v *logView) address(from events.Cursor) string {
	q := url.Values{"from": {from.String()}}
	for name, value := range map[string]string{"type": v.Type, "session_id": v.Session, "identity_id": v.Identity} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return root + "/log?" + q.Encode()
}
