package jetlog

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/convoy"
)

// identities holds the identities of which a partition has events, up to a sequence. Most identities never have an
// event of their own. Each Tail without a filter raises that sequence as it reads. A caller that needs a higher
// sequence asks the log; all waiting callers share one request.
type identities struct {
	known    Watermark
	ask      convoy.Barrier[uint64]
	subjects sync.Map // set of strings
}

// saw notes an event at seq. before is the sequence of the event just before it.
func (x *identities) saw(before, seq uint64, subject string) {
	if strings.HasPrefix(subject, events.IdentityRoot) {
		x.subjects.Store(subject, true)
	}
	if x.known.At() >= before {
		x.known.Advance(seq)
	}
}

// IdentityErasedNow returns the event that erased an identity before the call, or nil. It asks for the head as Head
// does.
func (l *Log) IdentityErasedNow(ctx context.Context, identityID string) (*events.IdentityErased, error) {
	head, err := l.Head(ctx, l.partitionOf(identityID).number)
	if err != nil {
		return nil, err
	}
	erased, _, err := l.IdentityErasure(ctx, identityID, head)
	return erased, err
}

// IdentityErasure returns the event that erased an identity, and its position, or nil if the log has none up to a
// position. The log must have shown that position (a Head, an event). A position in another partition than the
// identity's says nothing about the identity: then IdentityErasure asks for the head as Head does. Most identities have
// no events of their own, and then no further request is needed.
func (l *Log) IdentityErasure(
	ctx context.Context, identityID string, upTo events.Position,
) (*events.IdentityErased, events.Position, error) {
	p, subject := l.partitionOf(identityID), events.IdentitySubject(identityID)
	if upTo.Partition != p.number {
		var err error
		if upTo, err = l.Head(ctx, p.number); err != nil {
			return nil, events.Position{}, err
		}
	}
	if err := l.knowIdentities(ctx, p, upTo.Seq); err != nil {
		return nil, events.Position{}, Unavailable("read what was said of identities", err)
	}
	if _, named := p.identities.subjects.Load(subject); !named {
		return nil, events.Position{}, nil
	}
	return l.firstErasure(ctx, identityID)
}

func (l *Log) firstErasure(ctx context.Context, identityID string) (*events.IdentityErased, events.Position, error) {
	for e, err := range l.Identity(ctx, identityID) {
		if err != nil {
			return nil, events.Position{}, err
		}
		if f, ok := e.Fact.(*events.IdentityErased); ok {
			return f, e.Position, nil // the first in log order counts
		}
	}
	return nil, events.Position{}, nil
}

// readerLag is how long knowIdentities waits for a tail of this process to read what a replica has shown already. After
// that it asks the replicas.
const readerLag = 5 * time.Millisecond

// knowIdentities waits until all identities with an event up to a sequence are known.
func (l *Log) knowIdentities(ctx context.Context, p *partition, seq uint64) error {
	x := &p.identities
	if x.known.At() >= seq {
		return nil
	}
	if p.shared.Load() {
		brief, cancel := context.WithTimeout(ctx, readerLag)
		err := x.known.Wait(brief, seq)
		cancel()
		if err == nil {
			return nil
		}
	}
	_, err := x.ask.Wait(ctx)
	return err
}

// askIdentities reads those events of identities that are not known yet.
func (l *Log) askIdentities(ctx context.Context, p *partition) (uint64, error) {
	x := &p.identities
	upTo := p.seen.Load()
	for e, err := range l.subject(ctx, p, events.IdentityRoot+">", x.known.At(), math.MaxUint64, pages) {
		if err != nil {
			return 0, err
		}
		x.subjects.Store(e.Subject, true)
		x.known.Advance(e.Position.Seq)
	}
	x.known.Advance(upTo)
	return upTo, nil
}
