package effects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const runnerPrefix = "runner."

// Beat implements projections.Group: the runners of the effect, by the clock of NATS.
func (e *Effect) Beat(ctx context.Context, member string, alive time.Duration) ([]string, error) {
	bucket, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := bucket.Put(ctx, runnerPrefix+member, nil); err != nil {
		return nil, fmt.Errorf("meet the other runners: %w", err)
	}
	seen, err := e.runners(ctx, bucket)
	if err != nil {
		return nil, err
	}
	var members []string
	for m, at := range seen {
		switch silent := seen[member].Sub(at); {
		case m == member, silent <= alive:
			members = append(members, m)
		case silent > forgetAfter*alive:
			_ = bucket.Purge(ctx, runnerPrefix+m) // the next beat tries again
		}
	}
	return members, nil
}

// forgetAfter so many times the silence of a dead runner, its key goes.
const forgetAfter = 100

// runners gives when each was heard of last.
func (e *Effect) runners(ctx context.Context, bucket jetstream.KeyValue) (map[string]time.Time, error) {
	entries, err := list(ctx, bucket, runnerPrefix+"*")
	seen := map[string]time.Time{}
	for _, entry := range entries {
		seen[strings.TrimPrefix(entry.Key(), runnerPrefix)] = entry.Created()
	}
	return seen, err
}

// list gives the entries whose keys match.
func list(ctx context.Context, bucket jetstream.KeyValue, match string) (out []jetstream.KeyValueEntry, err error) {
	watch, err := bucket.Watch(ctx, match, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", match, err)
	}
	defer func() { err = errors.Join(err, watch.Stop()) }()
	for {
		select {
		case entry, ok := <-watch.Updates():
			if !ok || entry == nil { // all that there are
				return out, nil
			}
			out = append(out, entry)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Leave implements projections.Group.
func (e *Effect) Leave(ctx context.Context, member string) error {
	bucket, err := e.open(ctx)
	if err != nil {
		return err
	}
	if err := bucket.Purge(ctx, runnerPrefix+member); err != nil {
		return fmt.Errorf("leave the other runners: %w", err)
	}
	return nil
}
