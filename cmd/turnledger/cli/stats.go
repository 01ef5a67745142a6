package cli

import (
	"time"

	"github.com/turnledger/turnledger/services/client"
)

type statsCmd struct {
	Since  time.Time `help:"Only turns that started at or after that time (RFC 3339); the last 30 days by default."`
	Until  time.Time `help:"Only turns that started before that time."`
	Bucket string    `help:"hour or day." default:"day" enum:"hour,day"`
	By     string    `help:"pipeline_name, consultant, repository or none." default:"none" enum:"pipeline_name,consultant,repository,none"`
	remote
}

// Run shows how many turns there were.
func (c *statsCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Stats, error) {
		return s.Stats(e.Ctx, client.StatsQuery{Since: c.Since, Until: c.Until, Bucket: c.Bucket, By: c.By})
	}, func(out client.Stats) {
		table(e, client.StatsHeading, out.Buckets, out.Cells())
		e.printErr("position %s, %s behind the log", out.Position, Counted(out.LagEvents, "event"))
	})
}
