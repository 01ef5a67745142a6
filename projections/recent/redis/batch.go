package redis

import (
	"strconv"

	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// sessionOps is the changes that a batch makes to one session.
type sessionOps struct {
	session    string
	operations int
	head       string
	expires    string
	args       []string
	bytes      int
}

// operations splits a batch by session, in the order in which their sessions appear.
// now is in milliseconds.
func (v *View) operations(b projections.Batch, now int64) []*sessionOps {
	bySession := make(map[string]*sessionOps)
	var out []*sessionOps
	of := func(e *projections.Judged) *sessionOps {
		if e.Position.Seq <= b.From.Seq || e.SessionID == "" {
			return nil
		}
		g := bySession[e.SessionID]
		if g == nil {
			g = &sessionOps{session: e.SessionID}
			bySession[e.SessionID] = g
			out = append(out, g)
		}
		return g
	}
	for i := range b.Events {
		if g := of(&b.Events[i]); g != nil {
			v.add(g, &b.Events[i], now)
		}
	}
	for i := range b.Parked {
		if g := of(&b.Parked[i]); g != nil {
			g.operation("park", &b.Parked[i], operand{})
		}
	}
	return out
}

// add adds an event to its session's group (apply.lua documents the operations).
func (v *View) add(g *sessionOps, e *projections.Judged, now int64) {
	k := e.Change.Kind
	if !k.ChangesSession() {
		g.operation("mark", e, operand{})
		return
	}
	expires := v.cfg.Limits.Expires(e.Head).UnixMilli()
	if expires < now {
		g.operation("drop", e, operand{})
		return
	}
	g.head, g.expires = rueidis.BinaryString(recent.AppendHead(nil, e.Head)), strconv.FormatInt(expires, 10)
	switch k.Group() {
	case session.GroupText:
		v.text(g, e)
	case session.GroupGone:
		if t := e.Change.Left(); t != nil {
			g.operation("swap", e, operand{t.Place, t.ID[:], recent.Record(t)})
			return
		}
		g.operation("redact", e, operand{id: ids(e.Change.Turns)})
	case session.GroupSessionGone:
		g.operation("erase", e, operand{})
	case session.GroupHead, session.GroupNone:
		g.operation("head", e, operand{})
	}
}

// text adds an event that brings texts to a turn.
func (v *View) text(g *sessionOps, e *projections.Judged) {
	t, texts := e.Change.Turn, events.TextsOf(e.Fact)
	switch {
	case texts.Extension != nil:
		g.operation("extend", e, operand{t.Place, t.ID[:], recent.AppendExtension(nil, v.cfg.Rules, t, texts)})
	case texts.Question == nil:
		g.operation("answer", e, operand{t.Place, t.ID[:], recent.AppendAnswer(nil, t)})
	case t.Corrects():
		g.operation("swap", e, operand{t.Place, t.Replaces[:], recent.Record(t)})
	default:
		g.operation("start", e, operand{t.Place, t.ID[:], recent.Record(t)})
	}
}

// ids concatenates the ids of turns.
func ids(turns []*session.Turn) []byte {
	var out []byte
	for _, t := range turns {
		out = append(out, t.ID[:]...)
	}
	return out
}

// operand holds the arguments of an operation of apply.lua; most operations need only the event.
type operand struct {
	place uint64
	id    []byte // of one turn, or of several, one after the other
	data  []byte
}

func (g *sessionOps) operation(name string, e *projections.Judged, on operand) {
	first := "0"
	if e.First {
		first = "1"
	}
	g.operations++
	g.args = append(g.args, name, strconv.FormatUint(e.Position.Seq, 10), first, strconv.FormatUint(on.place, 10),
		rueidis.BinaryString(on.id), rueidis.BinaryString(on.data))
	g.bytes += len(on.data) + len(on.id) + 64
}

func (g *sessionOps) appendTo(args []string) []string {
	args = append(args, g.session, strconv.Itoa(g.operations), g.head, g.expires)
	return append(args, g.args...)
}
