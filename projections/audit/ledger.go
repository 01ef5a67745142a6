package audit

import (
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit/rows"
)

// record notes an event for the ledger and the security table. It leaves out an event that names a turn after the
// turn's redaction, or a session after its erasure, since such an event is erased from the log; and a
// description that does not count. A summary has no row, since it leaves the log whenever one of its turns changes.
func (p *plan) record(e *projections.Judged) {
	row := ledgerRow{e: e}
	row.turn, row.replaces = conversation.Named(e.Recorded)
	kind := e.Change.Kind
	if kind == conversation.Refused || kind == conversation.Anomaly {
		p.security = append(p.security, row)
	}
	afterErasure := e.Head.Erased != 0 && e.Head.Erased != e.Position.Seq && kind != conversation.Noted
	afterRedaction := kind == conversation.Anomaly && e.Change.Reason == conversation.CodeTurnRedacted ||
		kind == conversation.Duplicate && e.Change.Turn != nil && e.Change.Turn.Redacted != 0
	summary := e.Type == events.TypeSessionSummarized
	if !afterErasure && !afterRedaction && !e.VoidDescription() && !summary {
		p.ledger = append(p.ledger, row)
	}
}

// named is a turn that a fact of its own session names.
type named struct {
	session string
	turn    uuid.UUID
}

// settle removes rows that a later event of the same batch erases.
func (p *plan) settle() {
	if p.erased == nil && p.redacted == nil && p.described == nil {
		return
	}
	for _, r := range p.turns {
		r.drop = p.erased[r.session] != nil
	}
	p.ledger = slices.DeleteFunc(p.ledger, p.takenOut)
}

// takenOut reports whether a later redaction, erasure or description removes an event from the log.
func (p *plan) takenOut(l ledgerRow) bool {
	session, seq := l.e.SessionID, l.e.Position.Seq
	for _, turn := range []uuid.UUID{l.turn, l.replaces} {
		if by := p.redacted[named{session, turn}]; by != nil && seq < by.Position.Seq {
			return true
		}
	}
	if by := p.described[session]; by != nil && l.e.Type == by.Type && seq < by.Position.Seq {
		return true
	}
	by := p.erased[session]
	return by != nil && seq < by.Position.Seq && seq != by.Head.LinkedAt
}

// ledgerRow is an event with the turns that its fact names.
type ledgerRow struct {
	e              *projections.Judged
	turn, replaces uuid.UUID
}

var ledgerTable = rows.Table[ledgerRow]{Name: "event_ledger", Columns: []rows.Column[ledgerRow]{
	rows.Col("seq", "bigint", func(b *buffer, l ledgerRow) { b.Bigint(l.e.Position.Seq) }),
	rows.Col("recorded_at", "timestamptz", func(b *buffer, l ledgerRow) { b.Time(l.e.Time) }),
	rows.Col("turn_id", "uuid", func(b *buffer, l ledgerRow) { b.UUID(l.turn) }),
	rows.Col("replaces_turn_id", "uuid", func(b *buffer, l ledgerRow) { b.UUID(l.replaces) }),
	rows.Col("partition", "smallint", func(b *buffer, l ledgerRow) { b.Smallint(l.e.Position.Partition) }),
	rows.Col("event_id", "text", func(b *buffer, l ledgerRow) { b.Word(projections.Label(l.e.ID)) }),
	rows.Col("type", "text", func(b *buffer, l ledgerRow) { b.Word(projections.Label(l.e.Type)) }),
	rows.Col("session_id", "text", func(b *buffer, l ledgerRow) { b.Optional(knownID(l.e.SessionID)) }),
	rows.Col("identity_id", "text", func(b *buffer, l ledgerRow) { b.Optional(l.identity()) }),
}}

// identity is the one that the event belongs to.
func (l ledgerRow) identity() string {
	if l.e.SessionID != "" {
		return l.e.Head.Identity
	}
	return knownID(l.e.IdentityID)
}

// securityTable holds the refused links and the anomalies. identity_id is the identity that asked for the session.
var securityTable = rows.Table[ledgerRow]{Name: "security_events", Columns: append(
	ledgerTable.Only("seq", "recorded_at", "turn_id", "partition", "event_id", "type", "session_id").Columns,
	rows.Col("kind", "text", func(b *buffer, l ledgerRow) { b.Word(l.e.Change.Kind.String()) }),
	rows.Col("reason", "text", func(b *buffer, l ledgerRow) { b.Word(l.reason()) }),
	rows.Col("identity_id", "text", func(b *buffer, l ledgerRow) { b.Optional(knownID(l.asker())) }),
	rows.Col("source_hash", "text", func(b *buffer, l ledgerRow) { b.Optional(l.source()) }),
)}

func (l ledgerRow) reason() string {
	if l.e.Change.Kind == conversation.Refused {
		return conversation.CodeLinkedElsewhere
	}
	return projections.Label(l.e.Change.Reason)
}

// asker is the identity that asked for a session.
func (l ledgerRow) asker() string {
	if f, refused := l.e.Fact.(*events.LinkRefused); refused {
		return f.IdentityID
	}
	if f, linked := l.e.Fact.(*events.SessionLinked); linked {
		return f.IdentityID
	}
	return l.e.IdentityID
}

// source returns where a refused link came from.
func (l ledgerRow) source() string {
	if f, refused := l.e.Fact.(*events.LinkRefused); refused {
		return projections.Label(f.SourceHash)
	}
	return ""
}

// knownID returns an id, or "" if the id breaks the rules for ids, which only happens in events that state no fact.
func knownID(id string) string {
	if events.ValidID(id) != nil {
		return ""
	}
	return id
}
