package write

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// EraseSession closes a session for ever, and returns the receipt that shows how far the erasure of its texts has come.
// For a session that was erased before, it returns the first receipt. It fails with decide.ErrSessionNotFound if
// the log knows no such session. The event has the name of the call, so that the call is known when it comes again.
func (s *Service) EraseSession(ctx context.Context, sessionID string, c services.Erasure) (receipt string, err error) {
	if err := decide.ValidIDs("session_id", sessionID); err != nil {
		return "", err
	}
	w := s.writing(sessionID)
	head, err := w.refresh(ctx)
	if err != nil {
		return "", err
	}
	f := &events.SessionErased{
		SessionID: sessionID, Reason: c.Reason, ErasedBy: c.By,
		ReceiptID: newReceipt(events.Position{Partition: w.partition, Seq: head}),
	}
	defer w.pin()()
	if c.Call.Name() != "" {
		w.calls = headers(c.Call, []int{0})
	}
	v, err := w.run(ctx, w.deciding, func(st *session.State) decide.Decision {
		if c.Call.Only && st.Erased == 0 {
			return decide.Decision{Err: services.ErrNotRepeated}
		}
		return decide.Erase(st, f)
	})
	if err != nil {
		return "", err
	}
	first, e, err := factAt[*events.SessionErased](ctx, s, v.position, misplaced)
	switch {
	case err != nil:
		return "", err
	case c.Call.Only && !wrote(c.Call, e):
		return "", services.ErrNotRepeated
	}
	return first.ReceiptID, nil
}

// wrote reports whether an event was written for a call, or for the earlier one that it says it repeats.
func wrote(c services.Call, e events.Recorded) bool {
	of, called := parseCall(e.Call)
	return called && of.call == c.Name() && (c.Key != "" || c.Repeats && time.Since(e.Time) <= repeatTime)
}

// misplaced is why an erasure is unavailable.
const misplaced = "the erasure is not where it was written"

// EraseIdentity erases all sessions of an identity, also sessions that are linked later, and returns the receipt. For
// an identity that was erased before, it returns the first receipt. From then on reads show none of these sessions, and
// writes to them fail with decide.ErrSessionErased.
func (s *Service) EraseIdentity(
	ctx context.Context, identityID string, c services.Erasure,
) (receipt string, err error) {
	if err := decide.ValidIDs("identity_id", identityID); err != nil {
		return "", err
	}
	head, err := s.log.Head(ctx, s.log.Partition(identityID))
	if err != nil {
		return "", err
	}
	if first, _, err := s.log.IdentityErasure(ctx, identityID, head); err != nil || first != nil {
		return receiptOf(first), err
	}
	f := &events.IdentityErased{IdentityID: identityID, ReceiptID: newReceipt(head), Reason: c.Reason, ErasedBy: c.By}
	ack, err := s.log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
	if err == nil {
		err = s.log.Durable(ctx, ack.Position)
	}
	if err != nil {
		return "", err
	}
	first, _, err := s.log.IdentityErasure(ctx, identityID, ack.Position)
	if err == nil && first == nil {
		err = fmt.Errorf("%w: %s", jetlog.ErrUnavailable, misplaced)
	}
	return receiptOf(first), err
}

func receiptOf(f *events.IdentityErased) string {
	if f == nil {
		return ""
	}
	return f.ReceiptID
}

// erasedIdentity returns the fact that closes a session whose identity was erased. It returns nil if the identity was
// not erased, or the session is closed already. It searches what this service has read of the log so far, so nil is
// final only when the state is fresh: a fresh state holds all that was acknowledged before the write was asked for.
func (w *writing) erasedIdentity(ctx context.Context, d decided) (*events.SessionErased, error) {
	identity := d.head.Identity
	if identity == "" || d.head.Erased != 0 || identity == w.known.livingIdentity {
		return nil, nil
	}
	upTo := events.Position{Partition: w.partition, Seq: max(d.applied, w.known.head)}
	gone, at, err := w.log.IdentityErasure(ctx, identity, upTo)
	switch {
	case err != nil:
		return nil, err
	case gone != nil:
		w.own.afterErasure = w.own.linkedBefore && at.Partition == w.partition && at.Seq < w.own.first
		return gone.Of(w.id), nil
	case w.known.fresh || w.log.Partition(identity) != w.partition:
		// IdentityErasure has read up to the head of the identity's partition, if that is another one.
		w.known.livingIdentity = identity
	}
	return nil, nil
}

// newReceipt makes the id of a receipt. The id holds the position after which the erasure stands in the log, so a
// reader knows where to search.
func newReceipt(after events.Position) string {
	salt := make([]byte, 6)
	_, _ = rand.Read(salt) // never fails
	return fmt.Sprintf("%d-%d-%x", after.Partition, after.Seq, salt)
}
