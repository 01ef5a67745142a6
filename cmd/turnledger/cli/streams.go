package cli

import (
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/services/client"
)

type streamsCmd struct {
	Plan  streamsPlanCmd  `cmd:"" help:"Show the streams of the log, and what sets them apart from what is asked for."`
	Apply streamsApplyCmd `cmd:"" help:"Make the streams what is asked for, while they are in use."`
}

// streamsWanted is the wanted state of the streams, from the environment; missing values mean no change.
type streamsWanted struct {
	Partitions count `help:"Partitions that the log should have; fixed when it is made." env:"TURNLEDGER_PARTITIONS"`
	Replicas   count `help:"Replicas that each stream should have." env:"TURNLEDGER_REPLICAS"`
	remote
}

func (w streamsWanted) asked() client.StreamsWanted {
	return client.StreamsWanted{Partitions: int(w.Partitions), Replicas: int(w.Replicas)}
}

type streamsPlanCmd struct{ streamsWanted }

// Run fails if a wanted change is impossible.
func (c *streamsPlanCmd) Run(e *Env) error {
	var all []client.Stream
	err := ask(e, c.remote, func(s *client.Client) (_ []client.Stream, err error) {
		all, err = s.PlanStreams(e.Ctx, c.asked())
		return all, err
	}, func(all []client.Stream) { showStreams(e, all) })
	if err != nil {
		return err
	}
	changes, refused := 0, false
	for _, s := range all {
		for _, change := range s.Changes {
			changes++
			refused = refused || change.Refused != ""
		}
	}
	if refused {
		return errors.New("what is asked for can't be: see above")
	}
	if changes > 0 && !c.JSON {
		e.printErr("to make these changes: turnledger streams apply")
	}
	return nil
}

type streamsApplyCmd struct{ streamsWanted }

// Run changes the streams, and waits until new replicas are filled.
func (c *streamsApplyCmd) Run(e *Env) error {
	err := c.dialTwice(func(first, later *client.Client) error {
		all, err := first.ApplyStreams(e.Ctx, c.asked())
		if err != nil {
			return c.explain(e.Ctx, err)
		}
		bar := newProgress(e.Err, "filling replicas", "operations", totalUnknown)
		defer bar.Done()
		err = later.FillStreams(e.Ctx, c.asked(), all, lookEvery, func(lacking, most uint64) {
			bar.Reach(most-lacking, most)
		})
		if e.Ctx.Err() != nil {
			return errors.New("stopped waiting; the servers go on: turnledger streams plan shows how far")
		}
		return c.explain(e.Ctx, err)
	})
	if err != nil {
		return err
	}
	show := streamsPlanCmd(*c)
	show.tries = firstTries // a leader may have changed a moment ago
	return show.Run(e)
}

func showStreams(e *Env, all []client.Stream) {
	table(e, "STREAM\tKIND\tSTORAGE\tREPLICAS\tLEADER\tBEHIND\tEVENTS\tBYTES", all, func(s client.Stream) []any {
		return []any{s.Name, s.Kind, s.Storage, s.Replicas, s.Leader, s.Behind(), s.Events, s.Bytes}
	})
	for _, s := range all {
		for _, c := range s.Changes {
			line := fmt.Sprintf("%s: %s: %s, asked for: %s", s.Name, c.What, c.Have, c.Want)
			if c.Refused != "" {
				line += ": can't be: " + c.Refused
			}
			e.print("%s", line)
		}
	}
}
