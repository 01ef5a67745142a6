package overwrite

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/inside"
)

// Log takes events out of a log. Safe for concurrent use.
type Log struct {
	log    *jetlog.Log
	inside inside.Log
}

// On returns what takes events out of a log. It does no I/O.
func On(log *jetlog.Log) *Log { return &Log{log: log, inside: log.Inside()} }

// Erase overwrites the event at a position, on every replica, and reports whether there was an event. The sequence
// stays taken. Until Settle has returned, a power failure may bring the event back.
func (l *Log) Erase(ctx context.Context, at events.Position) (bool, error) {
	p, err := l.inside.Partition(at.Partition)
	if err != nil {
		return false, err
	}
	found, err := l.eraseFrom(ctx, p.Stream, at.Seq)
	if err != nil {
		return false, fmt.Errorf("erase %s: %w", at, err)
	}
	return found, nil
}

func (l *Log) eraseFrom(ctx context.Context, stream string, seq uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.inside.Deadline)
	defer cancel()
	// The server reads the event's block for this question. Otherwise it would read the block when it overwrites the
	// event, while all writes wait. The answer does not say whether there is an event: a leader may be about to apply
	// what a follower has shown already.
	request := map[string]any{"seq": seq, "no_hdr": true}
	if _, err := l.inside.Wire.Message(ctx, stream, request); err != nil {
		return false, err
	}
	var out struct {
		Success bool                `json:"success"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := l.inside.Wire.Call(ctx, "STREAM.MSG.DELETE."+stream, map[string]uint64{"seq": seq}, &out); err != nil {
		return false, fmt.Errorf("%w: %w", jetlog.ErrUnavailable, err)
	}
	if out.Success {
		return true, nil
	}
	// The event was gone before, or the server could not overwrite it.
	m, err := l.inside.Wire.Message(ctx, stream, request)
	switch {
	case err != nil:
		return false, err
	case m == nil:
		return false, nil
	default:
		return false, fmt.Errorf("%w: %w", jetlog.ErrUnavailable, out.Error)
	}
}

// Purge takes out a session's events up to and with a sequence, and returns their number. It does not overwrite them:
// the server writes over their bytes when it compacts the blocks.
func (l *Log) Purge(ctx context.Context, sessionID string, upTo uint64) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, l.inside.Deadline)
	defer cancel()
	var out struct {
		Purged int                 `json:"purged"`
		Error  *jetstream.APIError `json:"error"`
	}
	ask := map[string]any{"filter": events.SessionSubject(sessionID), "seq": upTo + 1}
	if err := l.inside.Wire.Call(ctx, "STREAM.PURGE."+l.streamOf(sessionID), ask, &out); err != nil {
		return 0, fmt.Errorf("purge a session: %w: %w", jetlog.ErrUnavailable, err)
	}
	if out.Error != nil {
		return 0, fmt.Errorf("purge a session: %w: %w", jetlog.ErrUnavailable, out.Error)
	}
	return out.Purged, nil
}

func (l *Log) streamOf(sessionID string) string { return events.StreamName(l.log.Partition(sessionID)) }

// Settle returns when all that Erase did in a partition is on disk.
func (l *Log) Settle(ctx context.Context, partition int) error {
	p, err := l.inside.Partition(partition)
	if err != nil {
		return err
	}
	return p.Gate.SettleRewritten(ctx)
}

// SettlePurge returns when all that Purge did in a partition is on disk. It syncs every block, about 0.1 ms each.
func (l *Log) SettlePurge(ctx context.Context, partition int) error {
	p, err := l.inside.Partition(partition)
	if err != nil {
		return err
	}
	return p.Gate.SettleAll(ctx)
}
