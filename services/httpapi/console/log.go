package console

import (
	"cmp"
	"context"
	"errors"
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
	// Receipts: the caller may see receipts.
	Receipts bool
	// Down: the last event stands first.
	Down bool
	// End is where the reading ended; Older, Newer, Newest and Live are addresses.
	End, Older, Newer, Newest, Live string
}

// log shows a page of events from a position or a time on; without either, the newest, the last one first.
func (s *surface) log(ctx context.Context, r *http.Request) (view, error) {
	if s.cfg.Events == nil {
		return view{}, errNothing
	}
	query := r.URL.Query()
	out := logView{
		From: query.Get("from"), Since: query.Get("since"), Type: query.Get("type"), Session: query.Get("session_id"),
		Identity: query.Get("identity_id"),
	}
	out.Receipts = s.seesReceipts(ctx)
	for _, t := range events.Types() {
		out.Types = append(out.Types, strings.TrimPrefix(t, typePrefix))
	}
	q, err := out.query()
	if err != nil {
		return view{}, err
	}
	if before := query.Get("before"); before != "" {
		if q.To, err = events.ParsePositions(before); err != nil {
			return view{}, invalid("before", "must be a position such as 0:42, or several of different partitions")
		}
		out.Newest = root + "/log?" + out.filter().Encode()
	}
	if out.Down = out.From == "" && (q.Since.IsZero() || len(q.To) > 0); out.Down {
		err = s.logTail(ctx, q, &out)
	} else {
		err = s.logPage(ctx, q, &out)
	}
	if err != nil {
		return view{}, err
	}
	if out.Newer == "" && out.Newest == "" {
		out.Live = liveHref(root+"/log", out.End, out.filter())
	}
	return view{"log", "Log", out}, nil
}

// query returns what the log's port is asked for.
func (v *logView) query() (q services.EventQuery, err error) {
	q = services.EventQuery{SessionID: v.Session, IdentityID: v.Identity, Own: services.WithOwn}
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

// How many events of a partition a page of newest events looks through at first, how many times more with each look,
// and of how many in all at most.
const (
	lookFirst   = eventsOnPage
	lookMost    = 400_000
	lookFurther = 20
)

// logTail reads the newest events up to q.To, or up to the end of the log, the last one first. It looks through the
// last events of each partition, and through more of them while the page is not full. Where it gives up, the next page
// goes on.
func (s *surface) logTail(ctx context.Context, q services.EventQuery, out *logView) error {
	head, err := s.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		return err
	}
	end, first := head.End(), head.From()
	head.Close()
	out.End, q.To = end.String(), back(end, 0)
	for look := uint64(lookFirst); ; look *= lookFurther {
		if q.SessionID == "" { // events of a session are found without looking at others
			q.From = back(end, look)
		}
		at, full, err := s.lookBack(ctx, q, out)
		if err != nil {
			return err
		}
		more := isAfter(at, first)
		if !full && more && look*lookFurther*uint64(len(end)) <= lookMost {
			continue
		}
		if more {
			out.Older = out.address("before", at)
		}
		return nil
	}
}

// isAfter says whether a cursor is after another one in some partition.
func isAfter(at, first events.Cursor) bool {
	for k, seq := range at {
		if seq > first[k] {
			return true
		}
	}
	return false
}

// lookBack shows the newest events that a query selects. It returns where the page before ends, and whether this one
// is full.
func (s *surface) lookBack(ctx context.Context, q services.EventQuery, out *logView) (events.Cursor, bool, error) {
	stream, err := s.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	kept, at := map[int][][]byte{}, maps.Clone(stream.From())
	err = each(ctx, stream, func(e services.Event) (bool, error) {
		list := append(kept[e.Position.Partition], slices.Clone(e.JSON))
		kept[e.Position.Partition] = list[max(0, len(list)-eventsOnPage-1):] // one more tells that there are more
		return true, nil
	})
	var rows []eventRow
	for _, list := range kept {
		for _, line := range list {
			row, bad := logRow(line)
			rows, err = append(rows, row), errors.Join(err, bad)
		}
	}
	slices.SortFunc(rows, func(a, b eventRow) int {
		return cmp.Or(b.Recorded.Compare(a.Recorded), cmp.Compare(a.at.Partition, b.at.Partition),
			cmp.Compare(b.at.Seq, a.at.Seq))
	})
	n := fitting(rows)
	out.Rows = rows[:n]
	for _, row := range rows[n:] {
		at.Pass(row.at)
	}
	return at, n >= eventsOnPage || n < len(rows), err
}

// logRow returns the row of an event of the log.
func logRow(line []byte) (eventRow, error) {
	row, err := rowOf(line)
	if err != nil {
		return row, err
	}
	space := room{mostJSON}
	row.JSON = space.take(indented(line), mostJSON)
	row.JSON.Text, row.data = strings.Clone(row.JSON.Text), nil // the whole event may be long
	row.cost = frameOfEvent + 3*len(row.Whole) + mostJSON - space.left
	row.at, err = events.ParsePosition(row.Position)
	return row, err
}

// back returns the positions so many events before a cursor, and at least the beginning of each partition.
func back(c events.Cursor, by uint64) (list []events.Position) {
	for k, seq := range c {
		list = append(list, events.Position{Partition: k, Seq: seq - min(seq, by)})
	}
	return list
}

// logPage reads the events of a page from the first one on, as many as there is room for.
func (s *surface) logPage(ctx context.Context, q services.EventQuery, out *logView) error {
	stream, err := s.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		return err
	}
	defer stream.Close()
	out.End = stream.End().String()
	var rows []eventRow
	err = each(ctx, stream, func(e services.Event) (bool, error) {
		row, err := logRow(e.JSON)
		rows = append(rows, row)
		return len(rows) <= eventsOnPage, err
	})
	if err != nil {
		return err
	}
	n, at := fitting(rows), maps.Clone(stream.From())
	first, err := s.firstSince(ctx, q)
	if err != nil {
		return err
	}
	if isAfter(at, first) {
		out.Older = out.address("before", at)
	}
	out.Rows = rows[:n]
	for _, row := range out.Rows {
		at.Pass(row.at)
	}
	if n < len(rows) {
		out.Newer = out.address("from", at)
	}
	return nil
}

// firstSince returns the position after which the time of a query begins; nil for the beginning of the log.
func (s *surface) firstSince(ctx context.Context, q services.EventQuery) (events.Cursor, error) {
	if q.Since.IsZero() {
		return nil, nil
	}
	q.From = nil
	stream, err := s.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return maps.Clone(stream.From()), nil
}

// fitting returns how many rows a page has room for.
func fitting(rows []eventRow) (n int) {
	for left := roomOfEvents; n < min(len(rows), eventsOnPage) && left >= mostJSON+frameOfEvent; n++ {
		left -= rows[n].cost
	}
	return n
}

// address returns the address of the page that begins after a position, or ends before it.
func (v *logView) address(name string, at events.Cursor) string {
	q := v.filter()
	q.Set(name, at.String())
	return root + "/log?" + q.Encode()
}

// filter returns the filter as an address has it.
func (v *logView) filter() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"since": v.Since, "type": v.Type, "session_id": v.Session, "identity_id": v.Identity,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}
