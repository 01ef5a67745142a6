package redis

import (
	"context"
	_ "embed" // the script
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

//go:embed restore.lua
var restoreText string

var restoreScript = rueidis.NewLuaScript(restoreText)

// Restore implements projections.View with one script.
func (v *View) Restore(ctx context.Context, s projections.Session) (_ []events.Position, err error) {
	defer projections.Wrap(&err, "restore a session in Redis")
	folded := s.State
	expires := v.cfg.Limits.Expires(folded.Head()).UnixMilli()
	args := []string{
		v.root, strconv.Itoa(s.Partition), strconv.FormatUint(s.UpTo, 10), s.ID, strconv.FormatUint(folded.Applied, 10),
	}
	if expires < time.Now().UnixMilli() {
		args = append(args, "", "", "")
	} else {
		v.cfg.Limits.Trim(folded)
		whole := "0"
		if folded.Whole {
			whole = "1"
		}
		args = append(args, whole, rueidis.BinaryString(recent.AppendHead(nil, folded.Head())),
			strconv.FormatInt(expires, 10))
		for _, t := range folded.Turns {
			args = append(args, strconv.FormatUint(t.Place, 10), rueidis.BinaryString(recent.Record(t)))
		}
	}
	done, err := v.client.exec(ctx, restoreScript, []string{v.pointer}, args).AsInt64()
	if err != nil || done == 0 {
		return nil, err
	}
	return s.Letters, nil
}
