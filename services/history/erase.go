package history

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// EraseSession closes a session for ever and gives the receipt that tells how far its
// texts are gone. Of one that was erased before it gives the first receipt.
// conversation.ErrSessionNotFound where the log knows no such session.
func (s *Service) EraseSession(ctx context.Context, sessionID string, c services.Erasure) (receipt string, err error) {
	if err := validSession(sessionID); err != nil {
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
	v, err := w.run(ctx, func(st *conversation.State) conversation.Decision { return st.DecideErase(f) })
	if err != nil {
		return "", err
	}
	e, found, err := s.log.At(ctx, v.position)
	if err != nil {
		return "", err
	}
	if first, ok := e.Fact.(*events.SessionErased); found && ok {
		return first.ReceiptID, nil
	}
	return "", fmt.Errorf("%w: the erasure is not where it was written", jetlog.ErrUnavailable)
}

// EraseIdentity says that all sessions of an identity go, also those linked later, and
// gives the receipt. Of one that was erased before it gives the first receipt. From then
// on reads show none of them, and writes to them are conversation.ErrSessionErased.
func (s *Service) EraseIdentity(
	ctx context.Context, identityID string, c services.Erasure,
) (receipt string, err error) {
	if events.ValidID(identityID) != nil {
		return "", &conversation.Invalid{Field: "identity_id", Why: events.ErrID.Error()}
	}
	partition := s.log.Partition(identityID)
	head, err := s.log.Head(ctx, partition)
	if err != nil {
		return "", err
	}
	first, _, err := s.log.IdentityErasure(ctx, identityID, head)
	switch {
	case err != nil:
		return "", err
	case first != nil:
		return first.ReceiptID, nil
	}
	f := &events.IdentityErased{IdentityID: identityID, ReceiptID: newReceipt(head), Reason: c.Reason, ErasedBy: c.By}
	ack, err := s.log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
	if err != nil {
		return "", err
	}
	if err := s.log.Durable(ctx, ack.Position); err != nil {
		return "", err
	}
	first, _, err = s.log.IdentityErasure(ctx, identityID, ack.Position)
	switch {
	case err != nil:
		return "", err
	case first == nil:
		return "", fmt.Errorf("%w: the erasure is not where it was written", jetlog.ErrUnavailable)
	}
	return first.ReceiptID, nil
}

// ofErased closes the session where its identity was erased, and tells whether that was
// to be done. The eraser closes all sessions of an identity, but may come later than this
// write, which must find the session closed. It is told from what this service has read
// of the log by now, and so for good only when the state is fresh: then that holds all
// that was acknowledged before the write was asked for.
func (w *writing) ofErased(ctx context.Context, head conversation.Head, applied uint64) (bool, error) {
	if head.Identity == "" || head.Erased != 0 || head.Identity == w.living {
		return false, nil
	}
	at := events.Position{Partition: w.partition, Seq: max(applied, w.held)}
	gone, erased, err := w.log.IdentityErasure(ctx, head.Identity, at)
	if err != nil {
		return false, err
	}
	if gone == nil {
		// In another partition than its own the head was asked for.
		if w.fresh || w.log.Partition(head.Identity) != w.partition {
			w.living = head.Identity
		}
		return false, nil
	}
	w.late = w.linked && erased.Partition == w.partition && erased.Seq < w.first
	ack, err := w.log.Append(ctx, jetlog.Append{Facts: []events.Fact{gone.Of(w.id)}})
	if err != nil {
		return false, err
	}
	return true, w.settle(ctx, ack.Position.Seq)
}

// newReceipt makes the id of a receipt. It says where to look: the erasure stands in
// the log after the position.
func newReceipt(after events.Position) string {
	var salt [6]byte
	_, _ = rand.Read(salt[:]) // never fails
	return fmt.Sprintf("%d-%d-%s", after.Partition, after.Seq, hex.EncodeToString(salt[:]))
}
