package client

import (
	"context"
	"fmt"
	"time"
)

// filling follows new replicas until each had what its leader has. Under load they never all are at the same moment, so
// a follower that was seen with everything once counts as full from then on.
type filling map[string]bool

// lackingIn returns what the followers that are not full yet lack, in operations; one that nothing is known of lacks
// something.
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

// FillStreams looks at the streams again and again, from all on, until new replicas are full. Each look is told what
// they lack and what they lacked at most.
func (c *Client) FillStreams(
	ctx context.Context, w StreamsWanted, all []Stream, every time.Duration, told func(lacking, most uint64),
) (err error) {
	full, most := filling{}, uint64(0)
	for {
		lacking := full.lackingIn(all)
		if lacking == 0 {
			return nil
		}
		most = max(most, lacking)
		told(lacking, most)
		wait(ctx, every)
		if all, err = c.PlanStreams(ctx, w); err != nil {
			return err
		}
	}
}

// underWay is what a follower may lack for a moment when much is written.
const underWay = 1000

// Behind says what the followers of a stream lack.
func (s Stream) Behind() string {
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
