package replay

import (
	"context"
	"math"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// headsOf gives the end of each partition, at least as new as all that was
// acknowledged before the call.
func headsOf(ctx context.Context, log *jetlog.Log) ([]uint64, error) {
	heads := make([]uint64, log.Partitions())
	for k := range heads {
		head, err := log.Head(ctx, k)
		if err != nil {
			return nil, err
		}
		heads[k] = head.Seq
	}
	return heads, nil
}

// linkedTo gives the sessions that are linked to one of some identities. It reads the
// log once, and decodes links alone.
func linkedTo(ctx context.Context, log *jetlog.Log, heads []uint64, identities []string) (map[string]bool, error) {
	out := map[string]bool{}
	for k, head := range heads {
		in := backlog{log: log, partition: k, end: head, options: jetlog.TailOptions{MaxBatch: 4000}}
		err := in.each(ctx, func(m jetlog.Message) error {
			if m.Type() != events.TypeSessionLinked {
				return nil
			}
			e := m.Recorded()
			f, ok := e.Fact.(*events.SessionLinked)
			if !ok || out[f.SessionID] || !slices.Contains(identities, f.IdentityID) {
				return nil
			}
			owner, err := linkOf(ctx, log, f.SessionID, math.MaxUint64)
			if err == nil && slices.Contains(identities, owner) {
				out[f.SessionID] = true
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// linkOf gives the identity of a session, or "". As in the fold the first link
// stands: a later one to another identity is an anomaly, and its session is not that
// identity's to read.
func linkOf(ctx context.Context, log *jetlog.Log, session string, upTo uint64) (string, error) {
	for e, err := range log.Session(ctx, session, 0, upTo) {
		if err != nil {
			return "", err
		}
		switch f := e.Fact.(type) {
		case *events.SessionLinked:
			return f.IdentityID, nil
		case *events.SessionErased:
			return "", nil
		}
	}
	return "", nil
}
