package audit

import (
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// headRow is a session as the last event that changed it left it. It is written whole where more than its activity may have
// changed, or it has no row yet.
type headRow struct {
	last  *projections.Judged
	whole bool
}

// head notes what a session is after the event.
func (p *plan) head(e *projections.Judged) {
	h := p.heads[e.SessionID]
	if h == nil {
		h = new(headRow)
		p.heads[e.SessionID] = h
	}
	h.last = e
	switch e.Change.Kind {
	case conversation.Started, conversation.Answered, conversation.Corrected, conversation.Refused:
		h.whole = h.whole || e.Change.NewBoundary
	case conversation.Seen, conversation.Duplicate, conversation.Anomaly, conversation.Linked, conversation.TurnGone,
		conversation.Reset, conversation.Erased, conversation.Noted:
		h.whole = true
	}
}

var sessionColumns = columns{
	{"linked_position", "bigint"}, {"boundary", "bigint"}, {"reset_position", "bigint"}, {"erased_position", "bigint"},
	{"created_at", "timestamptz"}, {"last_active_at", "timestamptz"}, {"erased_at", "timestamptz"},
	{"finalized", "int"}, {"pending", "int"}, {"shown_finalized", "int"}, {"shown_pending", "int"},
	{"partition", "smallint"}, {"created_ns", "smallint"}, {"last_active_ns", "smallint"}, {"erased_ns", "smallint"},
	{"session_id", "text"}, {"identity_id", "text"},
}

// encodeSession writes the columns of sessionColumns, in their order; so does each encoder with its own.
func encodeSession(b *rowBuffer, e *projections.Judged) {
	h := &e.Head
	b.begin(len(sessionColumns))
	b.seq(h.LinkedAt)
	b.bigint(h.Boundary)
	b.seq(h.ResetAt)
	b.seq(h.Erased)
	b.time(h.CreatedAt)
	b.time(h.LastActive)
	b.time(h.ErasedAt)
	b.integer(h.Finalized)
	b.integer(h.Pending)
	b.integer(h.ShownFinalized)
	b.integer(h.ShownPending)
	b.smallint(e.Position.Partition)
	b.nanos(h.CreatedAt)
	b.nanos(h.LastActive)
	b.nanos(h.ErasedAt)
	b.word(e.SessionID)
	b.optional(h.Identity)
}

// activityColumns are what turns that come and go change in a session.
var activityColumns = columns{
	{"last_active_at", "timestamptz"}, {"last_active_ns", "smallint"},
	{"finalized", "int"}, {"pending", "int"}, {"shown_finalized", "int"}, {"shown_pending", "int"}, {"session_id", "text"},
}

func encodeActivity(b *rowBuffer, e *projections.Judged) {
	h := &e.Head
	b.begin(len(activityColumns))
	b.time(h.LastActive)
	b.nanos(h.LastActive)
	b.integer(h.Finalized)
	b.integer(h.Pending)
	b.integer(h.ShownFinalized)
	b.integer(h.ShownPending)
	b.word(e.SessionID)
}

var linkColumns = columns{
	{"linked_position", "bigint"}, {"linked_at", "timestamptz"}, {"partition", "smallint"}, {"session_id", "text"}, {"identity_id", "text"},
}

func encodeLink(b *rowBuffer, e *projections.Judged) {
	b.begin(len(linkColumns))
	b.bigint(e.Position.Seq)
	b.time(e.Time)
	b.smallint(e.Position.Partition)
	b.word(e.SessionID)
	b.word(e.Head.Identity)
}
