package redis

import (
	"strconv"

	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// group is what a batch does to one session.
type group struct {
	session    string
	operations int
	head       string
	expires    string
	args       []string
	bytes      int
}

// operations turns a batch into groups, in the order in which their sessions appear.
// now is in milliseconds.
func (v *View) operations(b projections.Batch, now int64) []*group {
	bySession := make(map[string]*group)
	var out []*group
	of := func(e *projections.Judged) *group {
		if e.Position.Seq <= b.From.Seq || e.SessionID == "" {
			return nil
		}
		g := bySession[e.SessionID]
		if g == nil {
			g = &group{session: e.SessionID}
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
			g.operation("park", &b.Parked[i], 0, nil, nil)
		}
	}
	return out
}

// add puts an event into its session's group (apply.lua says what is done there).
func (v *View) add(g *group, e *projections.Judged, now int64) {
	k := e.Change.Kind
	if !k.ChangesSession() {
		g.operation("mark", e, 0, nil, nil)
		return
	}
	expires := v.cfg.Limits.Expires(e.Head).UnixMilli()
	if expires < now {
		g.operation("drop", e, 0, nil, nil)
		return
	}
	g.head, g.expires = rueidis.BinaryString(recent.AppendHead(nil, e.Head)), strconv.FormatInt(expires, 10)
	t := e.Change.Turn
	switch k {
	case conversation.Started:
		g.operation("start", e, t.Place, t.ID[:], recent.PendingRecord(t))
	case conversation.Answered:
		g.operation("answer", e, t.Place, t.ID[:], recent.AppendAnswer(nil, t))
	case conversation.Corrected:
		g.operation("correct", e, t.Place, t.Replaces[:], recent.FinalizedRecord(t))
	case conversation.TurnGone:
		g.operation("redact", e, 0, ids(e.Change.Turns), nil)
	case conversation.Erased:
		g.operation("erase", e, 0, nil, nil)
	case conversation.Linked, conversation.Reset,
		conversation.Seen, conversation.Duplicate, conversation.Anomaly, conversation.Refused, conversation.Noted:
		g.operation("head", e, 0, nil, nil)
	}
}

// ids of turns, one after the other.
func ids(turns []*conversation.Turn) []byte {
	var out []byte
	for _, t := range turns {
		out = append(out, t.ID[:]...)
	}
	return out
}

func (g *group) operation(name string, e *projections.Judged, place uint64, id, data []byte) {
	first := "0"
	if e.First {
		first = "1"
	}
	g.operations++
	g.args = append(g.args, name, strconv.FormatUint(e.Position.Seq, 10), first, strconv.FormatUint(place, 10),
		rueidis.BinaryString(id), rueidis.BinaryString(data))
	g.bytes += len(data) + len(id) + 64
}

func (g *group) appendTo(args []string) []string {
	args = append(args, g.session, strconv.Itoa(g.operations), g.head, g.expires)
	return append(args, g.args...)
}
