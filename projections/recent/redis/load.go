package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// Load implements recent.Loader in one round trip. It fails if Redis does not answer, and at once if it did not answer
// a moment ago.
func (v *View) Load(ctx context.Context, sessionID string, partition, shown int) (recent.Snapshot, error) {
	return v.load(sessionID, partition, shown, func(keys, args []string) rueidis.RedisResult {
		return v.client.try(ctx, v.cfg.LoadTimeout, loadScript, keys, args)
	})
}

// load runs load.lua, and reads the answer.
func (v *View) load(
	sessionID string, partition, shown int, ask func(keys, args []string) rueidis.RedisResult,
) (snap recent.Snapshot, err error) {
	defer projections.Wrap(&err, "load a session from Redis")
	args := []string{v.root, strconv.Itoa(partition), sessionID, strconv.Itoa(shown)}
	answer, err := ask([]string{v.pointer}, args).AsStrSlice()
	if err != nil {
		return snap, err
	}
	seq, err := strconv.ParseUint(answer[0], 10, 64)
	if err != nil {
		return snap, ErrAnswer
	}
	snap = recent.Snapshot{Applied: events.Position{Partition: partition, Seq: seq}}
	if len(answer) < 5 {
		return snap, nil
	}
	h, err := recent.ReadHead(answer[3])
	if err != nil {
		return recent.Snapshot{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if v.cfg.Limits.Expires(h).UnixMilli() < time.Now().UnixMilli() {
		return snap, nil
	}
	s := session.New(sessionID, v.cfg.Rules)
	s.Adopt(h)
	if s.Applied, err = strconv.ParseUint(answer[1], 10, 64); err != nil {
		return recent.Snapshot{}, ErrAnswer
	}
	records := answer[5:]
	s.Whole = answer[2] == "1" && answer[4] == strconv.Itoa(len(records))
	s.Turns = make([]*session.Turn, 0, len(records))
	for _, r := range slices.Backward(records) {
		t, err := recent.ReadTurn(r)
		if err != nil {
			return recent.Snapshot{}, fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		s.Turns = append(s.Turns, t)
	}
	// A batch that is applied in several steps may have moved the session further.
	snap.State, snap.Applied.Seq = s, max(seq, s.Applied)
	return snap, nil
}

// Applied is the position up to which a partition has been applied.
func (v *View) Applied(ctx context.Context, partition int) (events.Position, error) {
	return recent.Applied(ctx, v, partition)
}

// Wait blocks until the view has applied a position; it polls every few milliseconds. It returns an error if ctx ends
// or Redis fails first.
func (v *View) Wait(ctx context.Context, at events.Position) (err error) {
	defer projections.Wrap(&err, "wait for %s in Redis", at)
	for wait := time.Millisecond; ctx.Err() == nil; wait = min(2*wait, longestPause) {
		applied, err := v.Applied(ctx, at.Partition)
		if err != nil || applied.Seq >= at.Seq {
			return err
		}
		pause.For(ctx, wait)
	}
	return ctx.Err()
}

const longestPause = 16 * time.Millisecond
