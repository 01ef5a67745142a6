package redis

import (
	"context"
	_ "embed" // the scripts
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

var _ recent.Restorable = (*View)(nil)

// deadLetters is how many dead letters are kept; older ones go.
const deadLetters = 1000

//go:embed park.lua
var parkText string

//go:embed restore.lua
var restoreText string

var (
	parkScript    = rueidis.NewLuaScript(parkText)
	restoreScript = rueidis.NewLuaScript(restoreText)
	deadScript    = rueidis.NewLuaScript(`return redis.call('LRANGE', ARGV[1] .. (redis.call('GET', KEYS[1]) or '1') .. ':dead', 0, -1)`)
	// amendScript writes one letter in the place of another.
	amendScript = rueidis.NewLuaScript(`
local dead = ARGV[1] .. (redis.call('GET', KEYS[1]) or '1') .. ':dead'
for i, letter in ipairs(redis.call('LRANGE', dead, 0, -1)) do
  if letter == ARGV[2] then
    redis.call('LSET', dead, i - 1, ARGV[3])
    return 1
  end
end
return 0`)
)

// Park keeps a dead letter. The view can't say what the event would have changed,
// so it no longer answers for the session: until its next event it holds none of
// it, and then only what came after.
func (v *View) Park(ctx context.Context, b projections.Batch, reason string) error {
	keys, args, err := v.commit(b, true)
	if err == nil {
		args = append(args, strconv.Itoa(deadLetters))
		for i := range b.Events {
			e := &b.Events[i]
			args = append(args, e.SessionID, rueidis.JSON(projections.NewDeadLetter(v.Name(), e, reason, v.cfg.Now())))
		}
		err = v.committed(ctx, parkScript, keys, args)
	}
	if err != nil {
		return fmt.Errorf("park after %s in Redis: %w", b.From.Position(), err)
	}
	return nil
}

// DeadLetters gives the last dead letters of the generation that is served, oldest
// first.
func (v *View) DeadLetters(ctx context.Context) ([]projections.DeadLetter, error) {
	letters, _, err := v.letters(ctx)
	return letters, err
}

// letters gives them also as they are stored.
func (v *View) letters(ctx context.Context) ([]projections.DeadLetter, []string, error) {
	records, err := v.client.exec(ctx, deadScript, []string{v.pointer}, []string{v.root}).AsStrSlice()
	if err != nil {
		return nil, nil, fmt.Errorf("read the dead letters in Redis: %w", err)
	}
	out := make([]projections.DeadLetter, len(records))
	for i, r := range records {
		if err := json.Unmarshal([]byte(r), &out[i]); err != nil {
			return nil, nil, fmt.Errorf("read the dead letters in Redis: %w", ErrAnswer)
		}
		out[i].Projection = v.Name()
	}
	return out, records, nil
}

// DropDeadLetter is described at projections.DeadLetterQueue.
func (v *View) DropDeadLetter(ctx context.Context, at events.Position, d projections.Drop) (projections.DeadLetter, error) {
	letters, records, err := v.letters(ctx)
	if err != nil {
		return projections.DeadLetter{}, err
	}
	for i, letter := range letters {
		if letter.Position != at {
			continue
		}
		letter.Dropped = &d
		done, err := v.client.exec(ctx, amendScript, []string{v.pointer}, []string{v.root, records[i], rueidis.JSON(letter)}).AsInt64()
		if err != nil {
			return projections.DeadLetter{}, fmt.Errorf("drop a dead letter in Redis: %w", err)
		}
		if done == 0 { // another operator was faster
			break
		}
		return letter, nil
	}
	return projections.DeadLetter{}, projections.ErrNoDeadLetter
}

// Restore is described at recent.Restorable: one script.
func (v *View) Restore(ctx context.Context, partition int, folded *conversation.State, upTo uint64) (bool, error) {
	expires := v.cfg.Limits.Expires(folded.Head()).UnixMilli()
	args := []string{v.root, strconv.Itoa(partition), strconv.FormatUint(upTo, 10), folded.SessionID, strconv.FormatUint(folded.Applied, 10)}
	if expires < v.cfg.Now().UnixMilli() {
		args = append(args, "", "", "")
	} else {
		v.cfg.Limits.Trim(folded)
		whole := "0"
		if folded.Whole {
			whole = "1"
		}
		args = append(args, whole, rueidis.BinaryString(appendHead(nil, folded.Head())), strconv.FormatInt(expires, 10))
		for _, t := range folded.Turns {
			record := pendingRecord(t)
			if t.Status == conversation.Finalized {
				record = finalizedRecord(t)
			}
			args = append(args, strconv.FormatUint(t.Place, 10), rueidis.BinaryString(record))
		}
	}
	done, err := v.client.exec(ctx, restoreScript, []string{v.pointer}, args).AsInt64()
	if err != nil {
		return false, fmt.Errorf("restore a session in Redis: %w", err)
	}
	return done == 1, nil
}
