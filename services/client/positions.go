package client

import (
	"strings"
	"sync"

	"github.com/turnledger/turnledger/events"
)

// positions are the newest that writes were answered with. Sessions of one bucket
// are in one partition, however many there are, so that a bucket's newest position
// is as good as a session's own, and 256 are enough.
type positions struct {
	mu     sync.Mutex
	newest [events.Buckets]events.Position
}

func (p *positions) saw(sessionID, position string) {
	at, err := events.ParsePosition(position)
	if err != nil {
		return // nothing was written
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := bucket(sessionID); at.Seq > p.newest[b].Seq {
		p.newest[b] = at
	}
}

// of gives the position that reads of a session need, or "".
func (p *positions) of(sessionID string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return text(p.newest[bucket(sessionID)])
}

// all gives the newest position of each partition.
func (p *positions) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	newest := map[int]events.Position{}
	for _, at := range p.newest {
		if at.Seq > newest[at.Partition].Seq {
			newest[at.Partition] = at
		}
	}
	var out []string
	for _, at := range newest {
		out = append(out, text(at))
	}
	return strings.Join(out, ",")
}

func text(at events.Position) string {
	if at.Seq == 0 {
		return ""
	}
	return at.String()
}

func bucket(sessionID string) int { return events.Bucket(events.Token(sessionID)) }
