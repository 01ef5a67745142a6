package fleet

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

var _ projections.DeadLetterQueue = (*Member)(nil)

// DeadLetters are the queues of all views, and of what is listed beside them.
func (f *Fleet) DeadLetters() []projections.DeadLetterQueue { return f.letters }

// Name implements projections.DeadLetterQueue.
func (m *Member) Name() string { return m.View.Name() }

func (m *Member) open() error {
	if m.opens() && !m.opened.Load() {
		return ErrUnopened
	}
	return nil
}

// DeadLetters implements projections.DeadLetterQueue.
func (m *Member) DeadLetters(ctx context.Context) ([]projections.DeadLetter, error) {
	if err := m.open(); err != nil {
		return nil, err
	}
	return m.queue.DeadLetters(ctx)
}

// RetryDeadLetter implements projections.DeadLetterQueue.
func (m *Member) RetryDeadLetter(ctx context.Context, at events.Position) (projections.Retried, error) {
	if err := m.open(); err != nil {
		return projections.Retried{}, err
	}
	return m.queue.RetryDeadLetter(ctx, at)
}

// DropDeadLetter implements projections.DeadLetterQueue.
func (m *Member) DropDeadLetter(
	ctx context.Context, at events.Position, d projections.Drop,
) (projections.DeadLetter, error) {
	if err := m.open(); err != nil {
		return projections.DeadLetter{}, err
	}
	return m.queue.DropDeadLetter(ctx, at, d)
}
