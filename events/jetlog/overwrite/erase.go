package overwrite

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/inside"
)

// Log removes events from a log. Safe for concurrent use.
type Log struct {
	log    *jetlog.Log
	inside inside.Log
}

// On returns a Log that removes events from the given log. It does no I/O.
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
	// This request makes the server read the event's block. Otherwise the server would read the block when it
	// overwrites the event, while all writes wait. The answer does not say whether the event exists: a leader may not
	// have applied yet what a follower has shown already.
	request := map[string]any{"seq": seq, "no_hdr": true}
	if _, err := l.inside.Wire.Message(ctx, stream, request); err != nil {
		return false, err
	}
	var out struct {
		Success bool                `json:"success"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := l.inside.Wire.Call(ctx, "STREAM.MSG.DELETE."+stream, map[string]uint64{"seq": seq}, &out); err != nil {
		return false, jetlog.Unavailable("", err)
	}
	if out.Success {
		return true, nil
	}
	// Either the event was gone already, or the server could not overwrite it.
	m, err := l.inside.Wire.Message(ctx, stream, request)
	switch {
	case err != nil:
		return false, err
	case m == nil:
		return false, nil
	default:
		return false, jetlog.Unavailable("", out.Error)
	}
}

// Purge removes a session's events up to a sequence, inclusive, and returns their number. It does not overwrite them:
// the server overwrites their bytes when it compacts the blocks.
func (l *Log) Purge(ctx context.Context, sessionID string, upTo uint64) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, l.inside.Deadline)
	defer cancel()
	var out struct {
		Purged int                 `json:"purged"`
		Error  *jetstream.APIError `json:"error"`
	}
	ask := map[string]any{"filter": events.SessionSubject(sessionID), "seq": upTo + 1}
	if err := l.inside.Wire.Call(ctx, "STREAM.PURGE."+l.streamOf(sessionID), ask, &out); err != nil {
		return 0, jetlog.Unavailable("purge a session", err)
	}
	if out.Error != nil {
		return 0, jetlog.Unavailable("purge a session", out.Error)
	}
	return out.Purged, nil
}

func (l *Log) streamOf(sessionID string) string { return events.StreamName(l.log.Partition(sessionID)) }

// Settle waits until all that Erase did in a partition is on disk.
func (l *Log) Settle(ctx context.Context, partition int) error {
	p, err := l.inside.Partition(partition)
	if err != nil {
		return err
	}
	return p.Gate.SettleRewritten(ctx)
}

// SettlePurge waits until all that Purge did in a partition is on disk. It syncs every block, which takes about 0.1 ms
// each.
func (l *Log) SettlePurge(ctx context.Context, partition int) error {
	p, err := l.inside.Partition(partition)
	if err != nil {
		return err
	}
	return p.Gate.SettleAll(ctx)
}
