package events

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/google/uuid"
)

// The types of events. A type is never renamed and never changes its meaning: a new shape gets a new version of the
// type, and old events are converted to it when they are read.
const (
	TypeTurnStarted       = "turnledger.turn.started.v1"
	TypeTurnFinalized     = "turnledger.turn.finalized.v1"
	TypeTurnRecorded      = "turnledger.turn.recorded.v1"
	TypeTurnExtended      = "turnledger.turn.extended.v1"
	TypeTurnCorrected     = "turnledger.turn.corrected.v1"
	TypeTurnPruned        = "turnledger.turn.pruned.v1"
	TypeTurnRedacted      = "turnledger.turn.redacted.v1"
	TypeSessionLinked     = "turnledger.session.linked.v1"
	TypeLinkRefused       = "turnledger.session.link_refused.v1"
	TypeSessionReset      = "turnledger.session.reset.v1"
	TypeSessionDescribed  = "turnledger.session.described.v1"
	TypeSessionForked     = "turnledger.session.forked.v1"
	TypeSessionBranched   = "turnledger.session.branched.v1"
	TypeSessionSummarized = "turnledger.session.summarized.v1"
	TypeSessionErased     = "turnledger.session.erased.v1"
	TypeIdentityErased    = "turnledger.identity.erased.v1"
	TypeErasureReceipt    = "turnledger.erasure.receipt.v1"
)

// catalogue has one row for each type of event, past types included. The methods of the type's Fact hold everything
// else about it: a type that lacks one of them does not compile here.
var catalogue = byType(
	event[TurnStarted](),
	event[TurnFinalized](),
	event[TurnRecorded](),
	event[TurnExtended](),
	event[TurnCorrected](),
	event[TurnPruned](),
	event[TurnRedacted](),
	event[SessionLinked](),
	event[LinkRefused](),
	event[SessionReset](),
	event[SessionDescribed](),
	event[SessionForked](),
	event[SessionBranched](),
	event[SessionSummarized](),
	event[SessionErased](),
	event[IdentityErased](),
	event[ErasureReceipt](),
)

// row is a row of the catalogue. zero is an empty fact of the type. The read of a past type returns the newest shape of
// its fact.
type row struct {
	zero Fact
	read func(body []byte) (Fact, error)
}

func event[F any, P interface {
	*F
	Fact
}]() row {
	return row{P(new(F)), func(body []byte) (Fact, error) {
		f := P(new(F))
		if err := jsonv2.Unmarshal(body, f, asBefore); err != nil {
			return nil, err
		}
		return f, nil
	}}
}

func byType(rows ...row) map[string]row {
	out := make(map[string]row, len(rows))
	for _, r := range rows {
		out[r.zero.Type()] = r
	}
	return out
}

// Types returns the event types of the catalogue, past ones included, in order.
func Types() []string { return slices.Sorted(maps.Keys(catalogue)) }

// Withdraws reports whether an event of a type may take texts of turns away that stand before it.
func Withdraws(typ string) bool { return WithdrawalOf(typ) >= WithdrawsVersion }

// SubjectOf returns the subject of an event, from its type, its body and the id in its subject: the subject of an
// identity, or of a session.
func SubjectOf(typ, id string, body []byte) string {
	r, known := catalogue[typ]
	if known && ofIdentity(r.zero) {
		if f, err := r.read(body); err != nil || ofIdentity(f) {
			return IdentitySubject(id)
		}
	}
	return SessionSubject(id)
}

func ofIdentity(f Fact) bool { return strings.HasPrefix(f.Subject(), IdentityRoot) }

// decodeFact reads the body of an event type, upcast to the newest shape, and checks it by the rules that need no
// session.
func decodeFact(typ string, body []byte) (Fact, Problem) {
	r, known := catalogue[typ]
	if !known {
		return nil, ProblemUnknownType
	}
	fact, err := r.read(body)
	if err != nil {
		return nil, ProblemBody
	}
	if p := fact.check(body); p != "" {
		return nil, p
	}
	return fact, ""
}

// asBefore makes the decoder accept what encoding/json accepts, since the log keeps messages and metadata as their
// senders wrote them, even with duplicate names. An id must have the one form of the schemas.
var asBefore = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsonv2.WithUnmarshalers(jsonv2.UnmarshalFunc(readUUID)))

// uuidLength is the length of the form with hyphens. No other form has 36 characters.
const uuidLength = 36

func readUUID(raw []byte, id *uuid.UUID) error {
	if len(raw) != uuidLength+2 || bytes.ContainsAny(raw, "ABCDEF") {
		return errors.New("not a UUID in lower case with hyphens")
	}
	return id.UnmarshalText(raw[1 : len(raw)-1])
}
