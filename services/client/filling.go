package client

import (
	"context"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events/pause"
)

// filling follows new replicas until each has caught up with its leader. Under load they are never all up to date at
// the same moment, so a replica that has caught up once counts as full from then on.
type filling map[string]bool

// lackingIn returns how many operations the followers lack that are not full yet. A follower of unknown state counts as
// lacking some.
func (f filling) lackingIn(all []Stream) (lacking uint64) {
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

// FillStreams polls the streams, beginning with all, until new replicas are full. It calls told after each poll with
// what they lack now, and the most that they lacked.
func (c *Client) FillStreams(
	ctx context.Context, w StreamsWanted, all []Stream, every time.Duration, progress func(lacking, most uint64),
) (err error) {
	full, most := filling{}, uint64(0)
	for {
		lacking := full.lackingIn(all)
		if lacking == 0 {
			return nil
		}
		most = max(most, lacking)
		progress(lacking, most)
		pause.For(ctx, every)
		if all, err = c.PlanStreams(ctx, w); err != nil {
			return err
		}
	}
}

// underWay is how many operations a full follower may lack for a moment under heavy writes.
const underWay = 1000

// Behind returns a text that says what the followers of a stream lack.
func (s Stream) Behind() string {
	var lacking uint64
	out, filling := "", len(s.Followers) < s.Replicas-1
	for _, x := range s.Followers {
		if s.Replicas == 1 {
			break // these replicas are about to be removed
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
