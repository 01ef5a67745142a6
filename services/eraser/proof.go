package eraser

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/pause"
)

// errUnproved says that an erasure can't be proved yet.
var errUnproved = errors.New("not proved yet")

// witness is what an erasure notes before it overwrites: the processes of the servers that hold the log. A server first
// forgets an event and then overwrites it. If it is killed in between, nobody can ask it any more whether the bytes are
// gone, and it answers "not found" either way. So an erasure is proved if each server is still the process that it was,
// or is one that was started after a scrub of its store directory. Why says why it is not proved.
type witness struct {
	// Nodes are the ids of the processes, by the names of the servers.
	Nodes map[string]string `json:"nodes,omitempty"`
	Why   string            `json:"why,omitempty"`
}

func (e *Eraser) witness(ctx context.Context) (witness, error) {
	now, err := e.log.Nodes(ctx)
	w := witness{Nodes: map[string]string{}}
	for name, n := range now {
		w.Nodes[name] = n.ID
	}
	return w, err
}

// prove returns an error until what was overwritten since a witness is proved to be gone. If the reason is a new one,
// it has the witness noted again.
func (e *Eraser) prove(
	ctx context.Context, now map[string]overwrite.Node, w *witness, note func(context.Context) error,
) error {
	why, err := e.unproved(ctx, now, *w)
	if err == nil && why != w.Why {
		w.Why = why
		err = note(ctx)
	}
	if err == nil && why != "" {
		err = fmt.Errorf("%w: %s", errUnproved, why)
	}
	return err
}

func (e *Eraser) unproved(ctx context.Context, now map[string]overwrite.Node, w witness) (why string, err error) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		switch n := now[name]; {
		case n.Behind:
			return fmt.Sprintf("the NATS server %s is away, or behind", name), nil
		case n.ID == "":
			return fmt.Sprintf("the NATS server %s does not answer %s: either it is away, or Turnledger's user of "+
				"NATS may not publish that subject", name, overwrite.Question), nil
		case n.ID == w.Nodes[name]: // as it was
		default:
			scrubbed, err := overwrite.Scrubbed(ctx, e.notes, name)
			if err != nil {
				return "", err
			}
			if scrubbed != n.ID {
				return fmt.Sprintf("the NATS server %s was started anew since the overwriting began, or was not known "+
					"then, so it may have left bytes behind: stop it, and start it by: "+
					"turnledger scrub DIR --report -- nats-server …", name), nil
			}
		}
	}
	return "", nil
}

// nodes returns who the servers are now. One that is a moment behind gets this moment.
func (e *Eraser) nodes(ctx context.Context) (now map[string]overwrite.Node, err error) {
	behind := func(n overwrite.Node) bool { return n.Behind }
	for range 4 {
		now, err = e.log.Nodes(ctx)
		if err != nil || !slices.ContainsFunc(slices.Collect(maps.Values(now)), behind) || !pause.For(ctx, lookEvery) {
			break
		}
	}
	return now, err
}
