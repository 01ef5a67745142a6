package jetlog

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
)

// identities knows of which identities a partition says anything, up to a sequence: of
// most, nothing is ever said. Whatever reads the partition on raises that sequence (each
// Tail without a filter does); a caller who needs more asks the log, once for all who
// wait.
type identities struct {
	known Watermark
	ask   barrier

	mu   sync.RWMutex
	said map[string]bool // by subject
}

// saw notes an event before which nothing stands behind another sequence.
func (x *identities) saw(before, seq uint64, subject string) {
	if strings.HasPrefix(subject, events.IdentityRoot) {
		x.note(subject)
	}
	if x.known.At() >= before {
		x.known.Advance(seq)
	}
}

func (x *identities) note(subject string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.said == nil {
		x.said = map[string]bool{}
	}
	x.said[subject] = true
}

func (x *identities) any(subject string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.said[subject]
}

// IdentityErasedNow returns what erased an identity before the call, nil where nothing did. It asks for the head as
// Head does.
func (l *Log) IdentityErasedNow(ctx context.Context, identityID string) (*events.IdentityErased, error) {
	head, err := l.Head(ctx, l.of(identityID).number)
	if err != nil {
		return nil, err
	}
	erased, _, err := l.IdentityErasure(ctx, identityID, head)
	return erased, err
}

// IdentityErasure returns what erased an identity, and where that stands; nil where nothing did that stood in the log
// up to a position which the log has shown (a Head, an event). A position of another partition than the identity's
// says nothing about it: then IdentityErasure asks for the head as Head does. Nothing was ever said about most
// identities, and then the log is asked for no more.
func (l *Log) IdentityErasure(
	ctx context.Context, identityID string, upTo events.Position,
) (*events.IdentityErased, events.Position, error) {
	p, subject := l.of(identityID), events.IdentitySubject(identityID)
	if upTo.Partition != p.number {
		var err error
		if upTo, err = l.Head(ctx, p.number); err != nil {
			return nil, events.Position{}, err
		}
	}
	if err := l.knowIdentities(ctx, p, upTo.Seq); err != nil {
		return nil, events.Position{}, fmt.Errorf("read what was said of identities: %w: %w", ErrUnavailable, err)
	}
	if !p.identities.any(subject) {
		return nil, events.Position{}, nil
	}
	for e, err := range l.Identity(ctx, identityID) {
		if err != nil {
			return nil, events.Position{}, err
		}
		if f, ok := e.Fact.(*events.IdentityErased); ok {
			return f, e.Position, nil // the first in log order stands
		}
	}
	return nil, events.Position{}, nil
}

// nearly is how long a reader of the partition may take to come to what a replica has
// shown already, before the replicas are asked.
const nearly = 5 * time.Millisecond

// knowIdentities returns when it is known of which identities anything is said up to a
// sequence.
func (l *Log) knowIdentities(ctx context.Context, p *partition, seq uint64) error {
	x := &p.identities
	if x.known.At() >= seq {
		return nil
	}
	if p.shared.Load() {
		brief, cancel := context.WithTimeout(ctx, nearly)
		err := x.known.Wait(brief, seq)
		cancel()
		if err == nil {
			return nil
		}
	}
	_, err := x.ask.wait(ctx)
	return err
}

// askIdentities reads what was said since.
func (l *Log) askIdentities(ctx context.Context, p *partition) (uint64, error) {
	x := &p.identities
	upTo := p.seen.Load()
	for e, err := range l.subject(ctx, p, events.IdentityRoot+">", x.known.At(), math.MaxUint64) {
		if err != nil {
			return 0, err
		}
		x.note(e.Subject)
		x.known.Advance(e.Position.Seq)
	}
	x.known.Advance(upTo)
	return upTo, nil
}
