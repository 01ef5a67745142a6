package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/turnledger/turnledger/services/client"
)

type streamsCmd struct {
	Plan  streamsPlanCmd  `cmd:"" help:"Show the streams of the log, and what sets them apart from what is asked for."`
	Apply streamsApplyCmd `cmd:"" help:"Make the streams what is asked for, while they are in use."`
}

// streamsWanted is what the environment asks of the streams; what is not given is not
// asked for.
type streamsWanted struct {
	Partitions int `help:"Partitions that the log should have; fixed when it is made." env:"TURNLEDGER_PARTITIONS"`
	Replicas   int `help:"Replicas that each stream should have." env:"TURNLEDGER_REPLICAS"`
	remote
}

func (w streamsWanted) asked() client.StreamsWanted {
	return client.StreamsWanted{Partitions: w.Partitions, Replicas: w.Replicas}
}

type streamsPlanCmd struct{ streamsWanted }

// Run fails where something can't become what is asked for.
func (c *streamsPlanCmd) Run(e *env) error {
	var got []client.Stream
	err := ask(e, c.remote, func(s *client.Client) (_ []client.Stream, err error) {
		got, err = s.PlanStreams(e.ctx, c.asked())
		return got, err
	}, func(all []client.Stream) error { return showStreams(e, all) })
	if err != nil {
		return err
	}
	if can, cannot := toChange(got); cannot > 0 {
		return errors.New("what is asked for can't be: see above")
	} else if can > 0 && !c.JSON {
		_, err = fmt.Fprintln(e.err, "to make these changes: turnledger streams apply")
	}
	return err
}

type streamsApplyCmd struct{ streamsWanted }

// Run changes the streams, and waits until new replicas are filled.
func (c *streamsApplyCmd) Run(e *env) error {
	s, err := c.dial(1, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	all, err := s.ApplyStreams(e.ctx, c.asked())
	if err != nil {
		return c.explain(e.ctx, err)
	}
	if err := c.fill(e, s, all); err != nil {
		return err
	}
	show := streamsPlanCmd(*c)
	return show.Run(e)
}

// fill waits until all followers have what their leaders have.
func (c *streamsApplyCmd) fill(e *env, s *client.Client, all []client.Stream) (err error) {
	bar := newProgress(e.err, "filling replicas", unitOperations, -1)
	defer bar.done()
	var most, shown uint64
	for {
		lacking, filled := behind(all)
		if filled {
			return nil
		}
		most = max(most, lacking)
		bar.reach(most-lacking, max(most, 1), &shown)
		select {
		case <-e.ctx.Done():
			return errors.New("stopped waiting; the servers go on: turnledger streams plan shows how far")
		case <-time.After(lookEvery):
		}
		if all, err = s.PlanStreams(e.ctx, c.asked()); err != nil && e.ctx.Err() == nil {
			return c.explain(e.ctx, err)
		}
	}
}

// behind counts what followers lack, and tells whether all are there.
func behind(all []client.Stream) (lacking uint64, filled bool) {
	filled = true
	for _, s := range all {
		filled = filled && len(s.Followers) >= s.Replicas-1
		for _, f := range s.Followers {
			lacking += f.Behind
			filled = filled && f.Current && f.Behind == 0
		}
	}
	return lacking, filled
}

func toChange(all []client.Stream) (can, cannot int) {
	for _, s := range all {
		for _, c := range s.Changes {
			if c.Refused == "" {
				can++
			} else {
				cannot++
			}
		}
	}
	return can, cannot
}

func showStreams(e *env, all []client.Stream) error {
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "STREAM\tKIND\tSTORAGE\tREPLICAS\tLEADER\tBEHIND\tEVENTS\tBYTES")
	for _, s := range all {
		lacking, filled := behind([]client.Stream{s})
		state := "0"
		if !filled {
			state = fmt.Sprintf("%d, filling", lacking)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\n", s.Name, s.Kind, s.Storage, s.Replicas, s.Leader, state, s.Events, s.Bytes)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range all {
		for _, c := range s.Changes {
			line := fmt.Sprintf("%s: %s: %s, asked for: %s", s.Name, c.What, c.Have, c.Want)
			if c.Refused != "" {
				line += ": can't be: " + c.Refused
			}
			if _, err := fmt.Fprintln(e.out, line); err != nil {
				return err
			}
		}
	}
	return nil
}
