package jetlog

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// syncKey marks in a stream who makes its events durable. A stream behind another
// process's gate gives PubAcks before the disk has the event, and only that process
// knows when it has: nobody else may acknowledge or show what is in it.
const (
	syncKey    = "turnledger.sync"
	syncGate   = "gate"
	syncServer = "server"
)

func (l *Log) mark() string {
	if l.cfg.GateDir != "" {
		return syncGate
	}
	return syncServer
}

// checkMark keeps the mark of a stream that this process's own server holds, and
// refuses another's that is behind a gate.
func (l *Log) checkMark(ctx context.Context, info *jetstream.StreamInfo) error {
	have := info.Config.Metadata[syncKey]
	if l.cfg.Outside {
		if have == syncGate {
			return fmt.Errorf("%w: stream %s is on a server that acknowledges before the disk has an event, and only its own process knows better: set TURNLEDGER_SYNC=always there",
				ErrStream, info.Config.Name)
		}
		return nil
	}
	if have == l.mark() {
		return nil
	}
	cfg := info.Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	cfg.Metadata[syncKey] = l.mark()
	if _, err := l.js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("mark stream %s: %w: %w", cfg.Name, ErrUnavailable, err)
	}
	return nil
}

// restoredKey marks in a stream when it was restored. Its nodes don't agree on when it was
// made: the one that took the copy has another time of it than the others (nats-server
// 2.15.2), so that with the next leader it would seem to be made anew.
const (
	restoredKey = "turnledger.restored"
	// restoringKey marks a stream that is being restored. Open refuses it, unless it is opened to end the restore: what
	// was erased since the backup is still in it.
	restoringKey = "turnledger.restoring"
	// restoredFor is how much later a restored stream may be made, by another clock. A copy
	// that NATS's own tools put back has the mark, too: it is as old as that restore, and
	// not this stream's. One that was made long before its mark is restored all the same: a
	// copy in the form of older servers brings its stream's time to the node that takes it.
	restoredFor = 24 * time.Hour
)

// made is when a stream came to be what it is.
func made(created time.Time, marks map[string]string) time.Time {
	restored, err := time.Parse(time.RFC3339Nano, marks[restoredKey])
	if err != nil || created.Sub(restored) > restoredFor {
		return created
	}
	return restored
}
