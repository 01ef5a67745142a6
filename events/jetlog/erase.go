package jetlog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// Erase overwrites the event at a position, on every replica, and tells whether there
// was one. The sequence stays taken. It is no more than a wish until Settle has
// returned: until then a power failure may bring the event back.
func (l *Log) Erase(ctx context.Context, at events.Position) (bool, error) {
	p, err := l.partition(at.Partition)
	if err != nil {
		return false, err
	}
	found, err := l.eraseFrom(ctx, p.name, at.Seq)
	if err != nil {
		return false, fmt.Errorf("erase %s: %w", at, err)
	}
	return found, nil
}

func (l *Log) eraseFrom(ctx context.Context, stream string, seq uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Deadline)
	defer cancel()
	// The server reads the event's block for this; else it would when it overwrites the
	// event, while all writes wait. Whether there is one only the order itself tells: a
	// leader may be about to apply what a follower has shown.
	if _, err := l.messageOf(ctx, stream, map[string]any{"seq": seq, "no_hdr": true}); err != nil {
		return false, err
	}
	var out struct {
		Success bool                `json:"success"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := l.api(ctx, "STREAM.MSG.DELETE."+stream, map[string]uint64{"seq": seq}, &out); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if out.Success {
		return true, nil
	}
	// Gone before, or the server could not.
	m, err := l.messageOf(ctx, stream, map[string]any{"seq": seq, "no_hdr": true})
	switch {
	case err != nil:
		return false, err
	case m == nil:
		return false, nil
	default:
		return false, fmt.Errorf("%w: %w", ErrUnavailable, out.Error)
	}
}

// Purge takes out a session's events up to and with a sequence, without overwriting
// them: the server writes over their bytes when it compacts the blocks. It gives their
// number.
func (l *Log) Purge(ctx context.Context, sessionID string, upTo uint64) (int, error) {
	p := l.of(sessionID)
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Deadline)
	defer cancel()
	var out struct {
		Purged int                 `json:"purged"`
		Error  *jetstream.APIError `json:"error"`
	}
	ask := map[string]any{"filter": events.SessionSubject(sessionID), "seq": upTo + 1}
	if err := l.api(ctx, "STREAM.PURGE."+p.name, ask, &out); err != nil {
		return 0, fmt.Errorf("purge a session: %w: %w", ErrUnavailable, err)
	}
	if out.Error != nil {
		return 0, fmt.Errorf("purge a session: %w: %w", ErrUnavailable, out.Error)
	}
	return out.Purged, nil
}

// Settle returns when all that Erase did in a partition is on disk.
func (l *Log) Settle(ctx context.Context, partition int) error {
	p, err := l.partition(partition)
	if err != nil {
		return err
	}
	// The server syncs a block before it puts it in the place of the old one. Left are the
	// names in the folder, and the newest blocks, which say which events are gone.
	return p.gate.settle(ctx, func(g *gate) error {
		info, err := os.Stat(g.dir)
		if err != nil {
			return err
		}
		return g.syncNew(info.ModTime())
	})
}

// SettlePurge returns when all that Purge did in a partition is on disk. It syncs every
// block, about 0.1 ms each.
func (l *Log) SettlePurge(ctx context.Context, partition int) error {
	p, err := l.partition(partition)
	if err != nil {
		return err
	}
	return p.gate.settle(ctx, func(g *gate) error {
		newest := g.block
		err := g.syncStream(filepath.Dir(g.dir))
		// What syncNew has to look at stays what it was.
		g.block = newest
		return err
	})
}

// settle syncs what is asked for, once.
func (g *gate) settle(ctx context.Context, sync func(*gate) error) error {
	if g == nil {
		return nil
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	defer func() { <-g.turn }()
	if g.failed != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, g.failed)
	}
	if err := sync(g); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}
