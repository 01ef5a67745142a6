package audit

import (
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// record notes an event for the ledger and for security. What names a redacted turn or an erased session, and comes after
// it, does not stay in the log.
func (p *plan) record(e *projections.Judged) {
	row := ledgerRow{e: e}
	row.turn, row.replaces = conversation.Named(e.Recorded)
	kind := e.Change.Kind
	if kind == conversation.Refused || kind == conversation.Anomaly {
		p.security = append(p.security, securityRow{row})
	}
	afterErasure := e.Head.Erased != 0 && e.Head.Erased != e.Position.Seq && kind != conversation.Noted
	afterRedaction := kind == conversation.Anomaly && e.Change.Reason == conversation.CodeTurnRedacted ||
		kind == conversation.Duplicate && e.Change.Turn != nil && e.Change.Turn.Gone != 0
	if !afterErasure && !afterRedaction {
		p.ledger = append(p.ledger, row)
	}
}

// named is a turn as a fact of its own session names it.
type named struct {
	session string
	turn    uuid.UUID
}

// settle takes out what a later event of the batch made void.
func (p *plan) settle() {
	if p.erased == nil && p.redacted == nil {
		return
	}
	for _, r := range p.turns {
		r.drop = p.erased[r.session] != nil
	}
	kept := p.ledger[:0]
	for _, l := range p.ledger {
		if !p.takenOut(l) {
			kept = append(kept, l)
		}
	}
	p.ledger = kept
}

// takenOut tells whether a redaction or an erasure that stands behind an event takes it out of the log.
func (p *plan) takenOut(l ledgerRow) bool {
	session, seq := l.e.SessionID, l.e.Position.Seq
	for _, turn := range []uuid.UUID{l.turn, l.replaces} {
		if by := p.redacted[named{session, turn}]; by != nil && seq < by.Position.Seq {
			return true
		}
	}
	by := p.erased[session]
	return by != nil && seq < by.Position.Seq && seq != by.Head.LinkedAt
}

// ledgerRow is an event and the turns that its fact names.
type ledgerRow struct {
	e              *projections.Judged
	turn, replaces uuid.UUID
}

var ledgerColumns = columns{
	{"seq", "bigint"}, {"recorded_at", "timestamptz"}, {"turn_id", "uuid"}, {"replaces_turn_id", "uuid"}, {"partition", "smallint"},
	{"event_id", "text"}, {"type", "text"}, {"session_id", "text"}, {"identity_id", "text"},
}

func (l ledgerRow) encode(b *rowBuffer) {
	e := l.e
	b.begin(len(ledgerColumns))
	b.bigint(e.Position.Seq)
	b.time(e.Time)
	b.uuid(l.turn)
	b.uuid(l.replaces)
	b.smallint(e.Position.Partition)
	b.word(projections.Label(e.ID))
	b.word(projections.Label(e.Type))
	b.optional(knownID(e.SessionID))
	if e.SessionID != "" {
		b.optional(e.Head.Identity)
	} else {
		b.optional(knownID(e.IdentityID))
	}
}

// securityRow is a refused link or an anomaly.
type securityRow struct{ ledgerRow }

var securityColumns = columns{
	{"seq", "bigint"}, {"recorded_at", "timestamptz"}, {"turn_id", "uuid"}, {"partition", "smallint"}, {"kind", "text"}, {"reason", "text"},
	{"event_id", "text"}, {"type", "text"}, {"session_id", "text"}, {"identity_id", "text"}, {"source_hash", "text"},
}

func (s securityRow) encode(b *rowBuffer) {
	e := s.e
	asked, source := asker(e)
	b.begin(len(securityColumns))
	b.bigint(e.Position.Seq)
	b.time(e.Time)
	b.uuid(s.turn)
	b.smallint(e.Position.Partition)
	b.word(e.Change.Kind.String())
	if e.Change.Kind == conversation.Refused {
		b.word(conversation.CodeLinkedElsewhere)
	} else {
		b.word(projections.Label(e.Change.Reason))
	}
	b.word(projections.Label(e.ID))
	b.word(projections.Label(e.Type))
	b.optional(knownID(e.SessionID))
	b.optional(knownID(asked))
	b.optional(projections.Label(source))
}

// asker tells who asked for a session, and from where.
func asker(e *projections.Judged) (identity, source string) {
	if f, refused := e.Fact.(*events.LinkRefused); refused {
		return f.IdentityID, f.SourceHash
	}
	if f, linked := e.Fact.(*events.SessionLinked); linked {
		return f.IdentityID, ""
	}
	return e.IdentityID, ""
}
