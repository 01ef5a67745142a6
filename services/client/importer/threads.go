package importer

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
)

// threads are those of all files. Their pages come in any order, so all files are read before the first thread is
// recorded.
type threads struct {
	byID map[string]*thread
	// order are the threads in the order in which the files name them.
	order []*thread
	// wrong are what can't be imported, each where it stands.
	wrong []line
	// unread are the files with a part that can't be read and names no thread.
	unread map[string]bool
	// bytes are those of all files.
	bytes int64
	// leaveOut notes the members of an object that are not kept.
	leaveOut func(object []byte, kept ...string)
}

// thread is a thread with its pages.
type thread struct {
	id, where string
	size      int64
	metadata  map[string]*string
	pages     []*page
	// seen are its messages by their ids.
	seen map[string]*threadMessage
	// files are those that name the thread.
	files map[string]bool
	// held: a part of the thread is wrong, which is reported, so nothing of it is imported.
	held bool
	// listed: it came in pages; ended: one of them has nothing behind it.
	listed, ended bool
}

// page is a run of messages of one thread in the order of a file. Where times don't tell the order of pages, messages
// that they share do.
type page struct {
	source   any // of the messages that stand together
	messages []*threadMessage
}

// threadMessage is a message of a thread on its way into a turn.
type threadMessage struct {
	at int64 // in Unix seconds
	in messageIn
}

// add adds a message, which a thread has once, and each of its pages. in is the list that it stands in; messages that
// stand alone in a file are one run.
func (t *thread) add(m messageObject, parsed messageIn, name string, in *listObject) error {
	source := any(name)
	if in != nil {
		source, t.listed = in, true
		t.ended = t.ended || !in.more
	}
	if n := len(t.pages); n == 0 || t.pages[n-1].source != source {
		t.pages = append(t.pages, &page{source: source})
	}
	p := t.pages[len(t.pages)-1]
	one := t.seen[m.ID]
	switch {
	case one == nil:
		one = &threadMessage{at: *m.CreatedAt, in: parsed}
		t.seen[m.ID] = one
	case !bytes.Equal(one.in.raw, parsed.raw):
		return errors.New("another message with the id of this one stands before it")
	case slices.Contains(p.messages, one):
		return nil
	}
	p.messages = append(p.messages, one)
	return nil
}

// lines returns what is to be imported: what is wrong, then the threads that are whole.
func (t *threads) lines() []line {
	out := slices.Clone(t.wrong)
	for _, one := range t.order {
		l := line{where: one.where, size: one.size, session: one.id}
		switch {
		case one.held || t.unreadIn(one):
			l.err = errReported
		case one.listed && !one.ended:
			l.err = errors.New("the last page of a thread is missing: every page of it has has_more")
		default:
			l.turns, l.open = turnsOf(one.id, one.sorted()), describing(one.id, one.metadata)
		}
		out = append(out, l)
	}
	rest := t.bytes // what stands around the objects
	for _, l := range out {
		rest -= l.size
	}
	if n := len(out); n > 0 {
		out[n-1].size += rest
	}
	return out
}

func (t *threads) unreadIn(one *thread) bool {
	for name := range one.files {
		if t.unread[name] {
			return true
		}
	}
	return false
}

// sorted returns the messages of a thread in their order. Times have seconds only, so the order within a
// page counts, which may be ascending or descending.
func (t *thread) sorted() (out []*threadMessage) {
	descending := true // as the API lists messages, unless a page shows otherwise
	if n := slices.IndexFunc(t.pages, func(p *page) bool { return p.direction() != 0 }); n >= 0 {
		descending = t.pages[n].direction() < 0
	}
	pages := slices.Clone(t.pages)
	if descending {
		slices.Reverse(pages)
	}
	for _, p := range pages {
		if d := p.direction(); d < 0 || d == 0 && descending {
			slices.Reverse(p.messages)
		}
	}
	slices.SortStableFunc(pages, func(a, b *page) int {
		return cmp.Or(cmp.Compare(a.first(), b.first()), cmp.Compare(a.last(), b.last()))
	})
	taken := make(map[*threadMessage]bool, len(t.seen))
	for _, p := range pages {
		for _, m := range p.messages {
			if !taken[m] {
				taken[m], out = true, append(out, m)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *threadMessage) int { return cmp.Compare(a.at, b.at) })
	return out
}

func (p *page) first() int64 { return p.messages[0].at }
func (p *page) last() int64  { return p.messages[len(p.messages)-1].at }

// direction is 1 for a page whose oldest message comes first, -1 for one whose newest does, 0 if its times don't tell.
func (p *page) direction() int { return cmp.Compare(p.last(), p.first()) }
