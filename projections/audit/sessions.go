package audit

import (
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/rows"
)

// headRow is a session as the last event that changed it left it. It is written whole where more than its activity may
// have changed, or where it has no row yet.
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

type (
	buffer = rows.Buffer
	judged = *projections.Judged
)

var sessionTable = rows.Table[judged]{Name: "sessions", Key: "session_id", Columns: []rows.Column[judged]{
	rows.Col("linked_position", "bigint", func(b *buffer, e judged) { b.Seq(e.Head.LinkedAt) }),
	rows.Col("boundary", "bigint", func(b *buffer, e judged) { b.Bigint(e.Head.Boundary) }),
	rows.Col("reset_position", "bigint", func(b *buffer, e judged) { b.Seq(e.Head.ResetAt) }),
	rows.Col("erased_position", "bigint", func(b *buffer, e judged) { b.Seq(e.Head.Erased) }),
	rows.Col("created_at", "timestamptz", func(b *buffer, e judged) { b.Time(e.Head.CreatedAt) }),
	rows.Col("last_active_at", "timestamptz", func(b *buffer, e judged) { b.Time(e.Head.LastActive) }),
	rows.Col("erased_at", "timestamptz", func(b *buffer, e judged) { b.Time(e.Head.ErasedAt) }),
	rows.Col("finalized", "int", func(b *buffer, e judged) { b.Int(e.Head.Finalized) }),
	rows.Col("pending", "int", func(b *buffer, e judged) { b.Int(e.Head.Pending) }),
	rows.Col("shown_finalized", "int", func(b *buffer, e judged) { b.Int(e.Head.ShownFinalized) }),
	rows.Col("shown_pending", "int", func(b *buffer, e judged) { b.Int(e.Head.ShownPending) }),
	rows.Col("partition", "smallint", func(b *buffer, e judged) { b.Smallint(e.Position.Partition) }),
	rows.Col("created_ns", "smallint", func(b *buffer, e judged) { b.Nanos(e.Head.CreatedAt) }),
	rows.Col("last_active_ns", "smallint", func(b *buffer, e judged) { b.Nanos(e.Head.LastActive) }),
	rows.Col("erased_ns", "smallint", func(b *buffer, e judged) { b.Nanos(e.Head.ErasedAt) }),
	rows.Col("session_id", "text", func(b *buffer, e judged) { b.Word(e.SessionID) }),
	rows.Col("identity_id", "text", func(b *buffer, e judged) { b.Optional(e.Head.Identity) }),
}}

// activityTable is what turns that come and go change in a session.
var activityTable = sessionTable.Only(
	"last_active_at", "last_active_ns", "finalized", "pending", "shown_finalized", "shown_pending", "session_id")

var linkTable = rows.Table[judged]{Name: "session_links", Key: "session_id", Columns: []rows.Column[judged]{
	rows.Col("linked_position", "bigint", func(b *buffer, e judged) { b.Bigint(e.Position.Seq) }),
	rows.Col("linked_at", "timestamptz", func(b *buffer, e judged) { b.Time(e.Time) }),
	rows.Col("partition", "smallint", func(b *buffer, e judged) { b.Smallint(e.Position.Partition) }),
	rows.Col("session_id", "text", func(b *buffer, e judged) { b.Word(e.SessionID) }),
	rows.Col("identity_id", "text", func(b *buffer, e judged) { b.Word(e.Head.Identity) }),
}}
