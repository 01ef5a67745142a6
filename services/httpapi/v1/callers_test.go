package v1_test

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// ring knows callers by their tokens.
type ring map[string]access.Caller

func (r ring) Authenticate(_ context.Context, token string) (access.Caller, error) {
	c, ok := r[token]
	if token == "ended" {
		return access.Caller{}, access.ErrKeyEnded
	}
	if !ok {
		return access.Caller{}, access.ErrUnauthenticated
	}
	return c, nil
}

// silentModel fails every message, and keeps the last.
type silentModel struct {
	last atomic.Pointer[services.ChatMessage]
}

func (s *silentModel) Send(_ context.Context, m services.ChatMessage, _ services.Listener) (services.ChatReply,
	error) {
	s.last.Store(&m)
	return services.ChatReply{}, services.ErrModelFailed
}

// nothing has no views and erases nothing.
type nothing struct{}

func (nothing) Rebuild(context.Context, string) (uint64, error) {
	return 0, projections.ErrNoProjection
}

func (nothing) CancelRebuild(context.Context, string) (uint64, error) {
	return 0, projections.ErrNoProjection
}

func (nothing) Verify(context.Context, string, int, func(done, of uint64) error,
	func(projections.Difference) error) (int, error) {
	return 0, projections.ErrNoProjection
}

func (nothing) EraseSession(context.Context, string, services.Erasure) (string, error) {
	return "", projections.ErrUnavailable
}

func (nothing) EraseIdentity(context.Context, string, services.Erasure) (string, error) {
	return "", projections.ErrUnavailable
}

func (nothing) Receipt(context.Context, string) (services.Receipt, error) {
	return services.Receipt{}, services.ErrNoReceipt
}

func (nothing) Receipts(context.Context, services.ReceiptsAsk) (services.ReceiptPage, error) {
	return services.ReceiptPage{}, nil
}

func (nothing) Sweep(context.Context) (services.Swept, error) {
	return services.Swept{}, projections.ErrUnavailable
}

func (nothing) DrySweep(context.Context) (services.Swept, error) {
	return services.Swept{}, projections.ErrUnavailable
}

func (nothing) Snapshot(_ context.Context, _ int, begin func(operate.Moment) (io.Writer, error)) error {
	_, err := begin(operate.Moment{})
	return err
}

func (nothing) Restore(context.Context, io.Reader) (services.Restored, error) {
	return services.Restored{}, nil
}
