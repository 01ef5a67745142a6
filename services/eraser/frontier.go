package eraser

import "sync"

// frontier knows up to where everything in a partition is done: events are looked at in order, and the work that some of
// them ask for is done in any order.
type frontier struct {
	mu     sync.Mutex
	looked uint64
	open   map[uint64]bool
}

// begin notes that an event asks for work, and reports whether that is new.
func (f *frontier) begin(seq uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[seq] {
		return false
	}
	if f.open == nil {
		f.open = map[uint64]bool{}
	}
	f.open[seq] = true
	return true
}

// end notes that the work is done.
func (f *frontier) end(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, seq)
}

// pass notes that all up to seq was looked at.
func (f *frontier) pass(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = max(f.looked, seq)
}

// done returns the sequence up to which nothing is left to do.
func (f *frontier) done() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.looked
	for seq := range f.open {
		at = min(at, seq-1)
	}
	return at
}
