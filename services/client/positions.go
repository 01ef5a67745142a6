package client

import (
	"sync"

	"github.com/turnledger/turnledger/events"
)

// positions are the newest positions of this client's writes; empty without Config.ReadYourWrites. All sessions of a
// bucket are in one partition, so a bucket's newest position serves all its sessions, and 256 positions are enough.
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

// newestOf returns the position that reads newestOf a session need, or "".
func (p *positions) newestOf(sessionID string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.newest[bucket(sessionID)]; at.Seq > 0 {
		return at.String()
	}
	return ""
}

// all returns the newest position of each partition.
func (p *positions) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	newest := events.Cursor{}
	for _, at := range p.newest {
		if at.Seq > 0 {
			newest.Pass(at)
		}
	}
	return newest.String()
}

func bucket(sessionID string) int { return events.Bucket(events.Token(sessionID)) }
