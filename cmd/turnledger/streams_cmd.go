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

// fill waits until each follower had what its leader has.
func (c *streamsApplyCmd) fill(e *env, s *client.Client, all []client.Stream) (err error) {
	bar := newProgress(e.err, "filling replicas", unitOperations, -1)
	defer bar.done()
	var most, shown uint64
	for full := (filled{}); ; {
		lacking := full.look(all)
		if lacking == 0 {
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

// filled has the followers that were seen with all that their leader had. Under load they
// never all are at the same moment.
type filled map[string]bool

// look counts what the others lack; one that nothing is known of yet lacks something.
func (f filled) look(all []client.Stream) (lacking uint64) {
	for _, s := range all {
		if missing := s.Replicas - 1 - len(s.Followers); missing > 0 {
			lacking += uint64(missing)
		}
		for _, x := range s.Followers {
			name := s.Name + " " + x.Server
			f[name] = f[name] || s.Replicas == 1 || x.Current && x.Behind == 0
			if !f[name] {
				lacking += max(x.Behind, 1)
			}
		}
	}
	return lacking
}

// underWay is what a follower may lack for a moment when much is written.
const underWay = 1000

// behind says what the followers of a stream lack.
func behind(s client.Stream) string {
	var lacking uint64
	out, filling := "", len(s.Followers) < s.Replicas-1
	for _, x := range s.Followers {
		if s.Replicas == 1 {
			break // they are about to go
		}
		lacking += x.Behind
		filling = filling || x.Behind > underWay
		if x.Offline {
			out += ", " + x.Server + " is offline"
		}
	}
	if filling && out == "" {
		out = ", filling"
	}
	return fmt.Sprint(lacking, out)
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
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\n", s.Name, s.Kind, s.Storage, s.Replicas, s.Leader, behind(s), s.Events, s.Bytes)
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
