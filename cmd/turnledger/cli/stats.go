package cli

import (
	"time"

	"github.com/turnledger/turnledger/services/client"
)

type statsCmd struct {
	Since  moment `help:"Only turns that started at or after a date, a time, or so long ago (36h); the last 30 days by default."`
	Until  moment `help:"Only turns that started before one."`
	Bucket string `help:"hour or day." default:"day" enum:"hour,day"`
	By     string `help:"pipeline_name, consultant, repository or none." default:"none" enum:"pipeline_name,consultant,repository,none"`
	remote
}

// Run shows how many turns there were.
func (c *statsCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Stats, error) {
		return s.Stats(e.Ctx, client.StatsQuery{
			Since: time.Time(c.Since), Until: time.Time(c.Until), Bucket: c.Bucket, By: c.By,
		})
	}, func(out client.Stats) {
		table(e, client.StatsHeading, out.Buckets, out.Cells())
		e.printErr("position %s, %s behind the log", out.Position, Counted(out.LagEvents, "event"))
	})
}
