package audit

import (
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/rows"
)

// headRow is a session after the last event that changed it. The whole row is written if more than the session's
// activity may have changed, or if there is no row yet.
type headRow struct {
	last  *projections.Judged
	whole bool
}

// head notes the session as it is after the event.
func (p *plan) head(e *projections.Judged) {
	h := p.heads[e.SessionID]
	if h == nil {
		h = new(headRow)
		p.heads[e.SessionID] = h
	}
	h.last = e
	h.whole = h.whole || e.Change.Kind.Group() != session.GroupText || e.Change.NewBoundary || e.First
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
	rows.Col("described_position", "bigint", func(b *buffer, e judged) { b.Seq(e.Head.Description().DescribedAt) }),
	rows.Col("title", "text", func(b *buffer, e judged) { b.Optional(e.Head.Description().Title) }),
	rows.Col("listed_at", "timestamptz", func(b *buffer, e judged) { b.Time(listedAt(e.Head)) }),
	rows.Col("listed_ns", "smallint", func(b *buffer, e judged) { b.Nanos(listedAt(e.Head)) }),
	rows.Col("forked_position", "bigint", func(b *buffer, e judged) { b.Seq(e.Head.Fork().ForkedAt) }),
	rows.Col("fork_request", "text", func(b *buffer, e judged) { b.Optional(e.Head.Fork().RequestID) }),
	rows.Col("forked_from", "text", func(b *buffer, e judged) { b.Optional(e.Head.Fork().From) }),
	rows.Col("fork_root", "text", func(b *buffer, e judged) { b.Optional(e.Head.Fork().Root) }),
	rows.Col("fork_segments", "text", func(b *buffer, e judged) { b.Optional(e.Head.Fork().Lineage) }),
	rows.Col("kind", "text", func(b *buffer, e judged) { b.Optional(string(e.Head.Description().Kind)) }),
	rows.Col("metadata", "jsonb", func(b *buffer, e judged) { b.JSONB([]byte(e.Head.Description().Metadata)) }),
	rows.Col("current_branch", "text", func(b *buffer, e judged) { b.Optional(e.Head.Description().CurrentBranch) }),
}}

// activityTable has the columns of a session that change when turns come and go.
var activityTable = sessionTable.Only(
	"last_active_at", "last_active_ns", "finalized", "pending", "shown_finalized", "shown_pending", "session_id",
	"listed_at", "listed_ns")

var linkTable = rows.Table[judged]{Name: "session_links", Key: "session_id", Columns: []rows.Column[judged]{
	rows.Col("linked_position", "bigint", func(b *buffer, e judged) { b.Bigint(e.Position.Seq) }),
	rows.Col("linked_at", "timestamptz", func(b *buffer, e judged) { b.Time(e.Time) }),
	rows.Col("partition", "smallint", func(b *buffer, e judged) { b.Smallint(e.Position.Partition) }),
	rows.Col("session_id", "text", func(b *buffer, e judged) { b.Word(e.SessionID) }),
	rows.Col("identity_id", "text", func(b *buffer, e judged) { b.Word(e.Head.Identity) }),
}}
