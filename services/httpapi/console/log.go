package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
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
	newest := out.From == "" && q.Since.IsZero() && !out.filtered()
	if newest {
		if q.From, err = s.newest(ctx); err != nil {
			return view{}, err
		}
	}
	if err := s.logPage(ctx, q, newest, &out); err != nil {
		return view{}, err
	}
	if out.Newer == "" {
		out.Live = liveHref(root+"/log", out.End, out.filter())
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

// logPage reads the events of a page: as many as there is room for, from the first on, or with newest up to the last.
func (s *surface) logPage(ctx context.Context, q services.EventQuery, newest bool, out *logView) error {
	stream, err := s.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		return err
	}
	defer stream.Close()
	out.End = stream.End().String()
	var rows []eventRow
	err = each(ctx, stream, func(e services.Event) (bool, error) {
		row, err := rowOf(e.JSON)
		if err != nil {
			return false, err
		}
		space := room{mostJSON}
		row.JSON = space.take(indented(e.JSON), mostJSON)
		row.JSON.Text, row.data = strings.Clone(row.JSON.Text), nil // the whole event may be long
		row.at, row.cost = e.Position, frameOfEvent+3*len(row.Whole)+mostJSON-space.left
		rows = append(rows, row)
		return newest || len(rows) <= eventsOnPage, nil
	})
	if err != nil {
		return err
	}
	from, to := fitting(rows, newest)
	out.Rows = rows[from:to]
	at := maps.Clone(stream.From())
	for _, row := range rows[:from] {
		at.Pass(row.at)
	}
	begun := func(seq uint64) bool { return seq > 0 }
	if !out.filtered() && slices.ContainsFunc(slices.Collect(maps.Values(at)), begun) {
		out.Older = out.address(events.NewCursor(back(at)...))
	}
	for _, row := range out.Rows {
		at.Pass(row.at)
	}
	if to < len(rows) {
		out.Newer = out.address(at)
	}
	return nil
}

// fitting returns which rows a page has room for, the first ones or the newest.
func fitting(rows []eventRow, newest bool) (from, to int) {
	left, shown := roomOfEvents, 0
	for shown < min(len(rows), eventsOnPage) && left >= mostJSON+frameOfEvent {
		row := rows[shown]
		if newest {
			row = rows[len(rows)-1-shown]
		}
		left -= row.cost
		shown++
	}
	if newest {
		return len(rows) - shown, len(rows)
	}
	return 0, shown
}

// address returns the address of the page that begins after a position.
func (v *logView) address(from events.Cursor) string {
	q := v.filter()
	q.Set("from", from.String())
	return root + "/log?" + q.Encode()
}

// filter returns the filter as an address has it.
func (v *logView) filter() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"type": v.Type, "session_id": v.Session, "identity_id": v.Identity} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}
