package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// turnsOnPage is how many turns a page of a session shows at most.
const turnsOnPage = 20

// marksOnPage is how many marks of branches a page of a session looks at, each by a read of the branch.
const marksOnPage = 100

// chain is a turn with its earlier versions, the oldest first.
type chain []*session.Turn

// chainsOf returns the turns of a session; a correction stands right after the turn that it replaces.
func chainsOf(s *session.State) (list []chain) {
	for i, t := range s.Turns {
		if i > 0 && s.Turns[i-1].Place == t.Place {
			list[len(list)-1] = append(list[len(list)-1], t)
			continue
		}
		list = append(list, chain{t})
	}
	return list
}

func (c chain) has(id uuid.UUID) bool {
	return slices.ContainsFunc(c, func(t *session.Turn) bool { return t.ID == id })
}

// made reports whether the event at a sequence is one of the turn's.
func (c chain) made(seq uint64) bool {
	return slices.ContainsFunc(c, func(t *session.Turn) bool {
		return seq == t.Started || seq == t.Final || seq == t.Redacted || slices.Contains(t.Sources(), seq)
	})
}

// last returns the sequence of the last event that made the turn what it is.
func (c chain) last() (seq uint64) {
	for _, t := range c {
		seq = max(seq, t.Last(), t.Redacted, t.PrunedAt())
	}
	return seq
}

// sessionView is the page of a session.
type sessionView struct {
	ID, Identity, Title string
	Metadata            string
	Kind                events.SessionKind
	Created, Active     time.Time
	Turns, Pending      int
	Position            events.Position
	// OfIdentity is the address of the list of the identity's sessions.
	OfIdentity string
	// From is the address of the session that a branch comes from, with its id.
	From     *link
	Branches []link
	Rows     []turnRow
	// Actions is what the caller may do to the session.
	Actions, ForGood []link
	// Older, Newer, Language and Live are addresses. Live is empty if the page does not end with the newest turn.
	Older, Newer, Language, Live string
	Translated                   bool
	// Events is nil for callers who may not read the log.
	Events *eventsView
}

func (*sessionView) crumbs() []link { return crumbsOf("") }

// link is an id with the address of its page.
type link struct{ ID, Href string }

// turnRow is a version of a turn.
type turnRow struct {
	ID, Anchor, Position, Status string
	Version                      int
	Created, Finalized, Deleted  time.Time
	Permalink, Explain           string // addresses of the turn in its page, and of its explanation
	Origin                       *link  // of a turn that a branch shares
	Messages                     []shownMessage
	Rest                         bool
	Tombstone, Earlier           bool
	Redaction                    *redaction // of a tombstone, for callers who may read the log
	Pruned                       bool       // messages of it were taken out
	Boundary                     bool       // prompts begin with this turn
	Branches, Actions            []link
	Summaries                    []summaryRow
	Again                        *again // in the playground
}

// again asks a turn's question again.
type again struct{ Thread, Turn, Request string }

// summaryRow is a summary that ends with a turn.
type summaryRow struct {
	Turns   int
	Model   string
	Created time.Time
	shownText
}

// sessionPage reads what the page of a session shows.
type sessionPage struct {
	acts       func(sessionID string, t *session.Turn) []link
	s          *surface
	reading    services.Reading
	href       string
	translated bool
	query      url.Values
	// log: the caller may read the log.
	log  bool
	room room
	// all are the session's turns, of which the page shows some, from an index on.
	all, shown []chain
	start      int
	// made are the branches that marks of this session have made.
	made map[string]bool
}

// session shows a session.
func (s *surface) session(ctx context.Context, r *http.Request) (view, error) {
	id := r.PathValue("session_id")
	wire.CallOf(ctx).SetAttribute("session_id", id)
	out, err := s.conversation(ctx, r, id)
	return view{"session", "Session", out}, err
}

// reading reads a session that there is.
func (s *surface) reading(ctx context.Context, id string) (services.Reading, error) {
	if events.ValidID(id) != nil {
		return services.Reading{}, errNothing
	}
	r, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: id, AllTurns: true})
	switch {
	case err != nil:
	case r.State.Erased != 0:
		err = &erasedError{events.Position{Partition: r.Position.Partition, Seq: r.State.Erased}}
	case !r.State.Found():
		err = services.ErrNoSession
	}
	return r, err
}

// conversation reads a page of a session, by the parameters of the request's address.
func (s *surface) conversation(ctx context.Context, r *http.Request, id string) (*sessionView, error) {
	reading, err := s.reading(ctx, id)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	p := &sessionPage{
		acts: func(sessionID string, t *session.Turn) []link { return s.turnActions(ctx, sessionID, t) },
		s:    s, reading: reading, href: sessionHref(id), query: query,
		translated: query.Get("language") == "translated",
		room:       room{roomOfTurns}, log: s.allows(ctx, access.EventsRead) && s.cfg.Events != nil,
	}
	out := p.head(id)
	if err := p.branches(ctx, out); err != nil {
		return nil, err
	}
	out.Actions, out.ForGood = s.sessionActions(ctx, id, out.Identity)
	if err := p.turns(out); err != nil {
		return nil, err
	}
	if !p.log {
		return out, nil
	}
	if out.Newer == "" {
		out.Live = liveHref(p.href, out.Position.String(), nil)
	}
	return out, p.events(ctx, out)
}

func (p *sessionPage) head(id string) *sessionView {
	h := p.reading.State.Head()
	is := h.Description()
	out := &sessionView{
		ID: id, Identity: h.Identity, Title: is.Title, Metadata: is.Metadata, Kind: is.Kind, Created: h.CreatedAt,
		Active: h.LastActive,
		Turns:  h.Finalized + h.Pending, Pending: h.Pending, Position: p.reading.Position, Translated: p.translated,
	}
	if h.Identity != "" {
		out.OfIdentity = root + "/" + sessionFilter{Identity: h.Identity}.query("")
	}
	if from := h.Fork().From; from != "" {
		out.From = &link{from, sessionHref(from)}
	}
	return out
}

// branches shows the session's branches, the newest first. A mark may have made none, or one that is erased by now.
func (p *sessionPage) branches(ctx context.Context, out *sessionView) error {
	marks := p.reading.State.Branches()
	slices.SortFunc(marks, func(a, b session.Branch) int { return cmp.Compare(b.MarkedAt, a.MarkedAt) })
	p.made = map[string]bool{}
	for _, mark := range marks[:min(len(marks), marksOnPage)] {
		child, err := p.s.cfg.Sessions.Read(ctx, services.Ask{SessionID: mark.SessionID, Own: true})
		switch {
		case err != nil:
			return err
		case !mark.Made(child.State):
			continue
		case len(out.Branches) < turnsOnPage:
			out.Branches = append(out.Branches, link{mark.SessionID, sessionHref(mark.SessionID)})
		}
		p.made[mark.SessionID] = true
	}
	return nil
}

// address returns the address of this page with one parameter set, or taken away.
func (p *sessionPage) address(name, value string) string {
	q := url.Values{}
	if p.translated {
		q.Set("language", "translated")
	}
	if before := p.query.Get("before"); before != "" {
		q.Set("before", before)
	}
	q.Del(name)
	if value != "" {
		q.Set(name, value)
	}
	if len(q) == 0 {
		return p.href
	}
	return p.href + "?" + q.Encode()
}

// turns chooses the turns of the page, and fills in their rows.
func (p *sessionPage) turns(out *sessionView) error {
	p.all = chainsOf(p.reading.State)
	all := p.all
	end, err := p.end(all)
	if err != nil {
		return err
	}
	start := end
	var rows [][]turnRow
	for start > 0 && end-start < turnsOnPage && p.room.left > mostText {
		start--
		rows = append(rows, p.rows(all[start], start > 0 && p.isBoundary(all[start-1], all[start])))
	}
	slices.Reverse(rows)
	out.Rows, p.shown, p.start = slices.Concat(rows...), all[start:end], start
	p.summaries(out)
	if start > 0 {
		out.Older = p.address("before", all[start][0].ID.String())
	}
	switch newer := end + turnsOnPage; {
	case end == len(all):
	case newer >= len(all):
		out.Newer = p.address("before", "")
	default:
		out.Newer = p.address("before", all[newer][0].ID.String())
	}
	other := "translated"
	if p.translated {
		other = ""
	}
	out.Language = p.address("language", other)
	return nil
}

// end returns the index after the last chain of the page: those before a turn, or those around a position.
func (p *sessionPage) end(all []chain) (int, error) {
	if at := p.query.Get("at"); at != "" {
		position, err := events.ParsePosition(at)
		if err != nil {
			return 0, invalid("at", "must be a position such as 0:42")
		}
		here := func(c chain) bool {
			_, partition, _ := p.reading.State.Origin(c[0], p.reading.Position.Partition)
			return partition == position.Partition
		}
		after := slices.IndexFunc(all, func(c chain) bool { return here(c) && c.made(position.Seq) })
		if after < 0 {
			after = slices.IndexFunc(all, func(c chain) bool {
				return here(c) && session.PlaceOf(c[0]) > position.Seq
			})
		}
		if after < 0 {
			return len(all), nil
		}
		return min(after+turnsOnPage/2, len(all)), nil
	}
	before := p.query.Get("before")
	if before == "" {
		return len(all), nil
	}
	id, err := uuid.Parse(before)
	if err != nil {
		return 0, invalid("before", "must be the id of a turn")
	}
	if i := slices.IndexFunc(all, func(c chain) bool { return c.has(id) }); i >= 0 {
		return i, nil
	}
	return 0, errNothing
}

// isBoundary reports whether prompts begin between two chains.
func (p *sessionPage) isBoundary(earlier, later chain) bool {
	b := p.reading.State.Boundary
	return b != 0 && earlier[0].Place <= b && later[0].Place > b
}

// language returns the language of the page's texts.
func (p *sessionPage) language() services.Language {
	if p.translated {
		return services.Translated
	}
	return services.Neutral
}

// rows returns the versions of a turn.
func (p *sessionPage) rows(c chain, boundary bool) (list []turnRow) {
	for i, t := range c {
		of, partition, inherited := p.reading.State.Origin(t, p.reading.Position.Partition)
		at := events.Position{Partition: partition, Seq: t.Started}
		row := turnRow{
			ID: t.ID.String(), Anchor: "t-" + t.ID.String(), Position: at.String(), Status: t.Status.String(),
			Version: t.Version, Created: t.CreatedAt, Finalized: t.FinalizedAt, Deleted: t.DeletedAt,
			Tombstone: t.Status == session.Redacted, Earlier: t.Status == session.Replaced,
			Boundary: boundary && i == 0, Actions: p.acts(of, t), Pruned: t.PrunedAt() > 0,
		}
		row.Permalink = p.href + "?at=" + row.Position + "#" + row.Anchor
		if p.log {
			row.Explain = p.href + "/turns/" + row.ID
		}
		p.room.left -= frame + len(row.Permalink) + len(row.Explain)
		for _, a := range row.Actions {
			p.room.left -= len(a.Href) + frameOfLink
		}
		if inherited {
			row.Origin = &link{of, sessionHref(of)}
			p.room.left -= 2 * len(row.Origin.Href)
		}
		row.Messages, row.Rest = messagesOf(t, p.language(), &p.room)
		list = append(list, row)
	}
	return list
}

// summaries shows the summaries that stand at the turns with which they end. Only those of the page's turns are judged:
// to judge one takes all turns that it covers.
func (p *sessionPage) summaries(out *sessionView) {
	p.reading.State.KeepSummaries(func(m session.Summary) bool { return out.row(m.Through.String()) != nil })
	for _, m := range p.reading.State.Standing() {
		if m.Fact == nil {
			continue
		}
		text := textIn(m.Fact.SummaryNeutral, m.Fact.SummaryTranslated, p.translated)
		row := out.row(m.Through.String())
		row.Summaries = append(row.Summaries, summaryRow{
			m.Turns, m.Fact.Model, m.CreatedAt, p.room.take(text, mostText),
		})
	}
}

// row returns the row of a turn, or nil.
func (v *sessionView) row(id string) *turnRow {
	for i := range v.Rows {
		if v.Rows[i].ID == id {
			return &v.Rows[i]
		}
	}
	return nil
}
