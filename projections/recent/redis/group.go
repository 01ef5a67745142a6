package redis

import (
	"context"
	_ "embed" // the script
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/projections"
)

var _ projections.Group = (*View)(nil)

//go:embed group.lua
var groupText string

var (
	groupScript = rueidis.NewLuaScript(groupText)
	partScript  = rueidis.NewLuaScript(`return redis.call('ZREM', KEYS[1], ARGV[1])`)
)

// Beat implements projections.Group: the runners that feed the served generation, by
// Redis's clock.
func (v *View) Beat(ctx context.Context, member string, alive time.Duration) ([]string, error) {
	members, err := v.client.exec(ctx, groupScript, []string{v.runners()}, []string{member, strconv.FormatInt(alive.Milliseconds(), 10)}).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("meet the other runners in Redis: %w", err)
	}
	return members, nil
}

// Leave implements projections.Group.
func (v *View) Leave(ctx context.Context, member string) error {
	if err := v.client.exec(ctx, partScript, []string{v.runners()}, []string{member}).Error(); err != nil {
		return fmt.Errorf("leave the other runners in Redis: %w", err)
	}
	return nil
}

func (v *View) runners() string { return v.pointer + ":runners" }
