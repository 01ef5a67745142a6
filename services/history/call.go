package history

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
)

// repeatTime is for how long a client may repeat a call without a key of its own.
const repeatTime = 10 * time.Minute

// Kinds of calls, by how their digests are made.
const (
	byKey  = "k"
	byBody = "b"
)

// calledEvent is what the header events.HeaderCall says of an event: which call appended it, as which of the call's
// events, and which message of its half its first message is.
type calledEvent struct {
	call            string // a kind and a digest
	index, of, base int
}

// headers returns the values of events.HeaderCall for the events of a call.
func headers(c services.Call, bases []int) []string {
	out := make([]string, len(bases))
	for i, base := range bases {
		out[i] = fmt.Sprintf("%s.%d.%d.%d", nameOf(c), i, len(bases), base)
	}
	return out
}

// nameOf returns a call's kind and digest.
func nameOf(c services.Call) string {
	if c.Key != "" {
		return byKey + c.Key
	}
	return byBody + c.Body
}

func parseCall(header string) (calledEvent, bool) {
	parts := strings.Split(header, ".")
	if len(parts) != 4 || len(parts[0]) < 2 {
		return calledEvent{}, false
	}
	c := calledEvent{call: parts[0]}
	for i, into := range []*int{&c.index, &c.of, &c.base} {
		n, err := strconv.Atoi(parts[i+1])
		if err != nil || n < 0 {
			return calledEvent{}, false
		}
		*into = n
	}
	return c, c.index < c.of
}

// calledAppend is what a call has appended to a session.
type calledAppend struct {
	first uint64
	of    int
	time  time.Time
}

func (c calledAppend) last() uint64 { return c.first + uint64(c.of) - 1 } //nolint:gosec // at least 1

// calls are the appends of a session by which repeated calls are known: those of calls with a key, and the newest one.
type calls struct {
	byKey  map[string]calledAppend
	name   string
	newest calledAppend
	// end is the last event of the newest append, or of what belongs to it: the answer of a model that it asked, and
	// marks of branches. noted is the session's last event.
	end, noted uint64
}

// note notes the append that an event belongs to. Its first event is enough, since an append is in the log whole.
func (c *calls) note(e events.Recorded) (grown int) {
	of, called := parseCall(e.Call)
	if (called || belongs(e.Fact)) && (c.end == c.noted || of.index > 0) {
		c.end = e.Position.Seq
	}
	c.noted = e.Position.Seq
	if !called || of.index != 0 {
		return 0
	}
	c.name, c.newest, c.end = of.call, calledAppend{e.Position.Seq, of.of, e.Time}, e.Position.Seq
	if !strings.HasPrefix(of.call, byKey) {
		return 0
	}
	if c.byKey == nil {
		c.byKey = map[string]calledAppend{}
	}
	if _, has := c.byKey[of.call]; has {
		return 0
	}
	c.byKey[of.call] = c.newest
	return 2 * len(of.call)
}

// belongs reports whether a fact without a call belongs to the append before it.
func belongs(f events.Fact) bool {
	switch f := f.(type) {
	case *events.TurnFinalized:
		return len(f.Settings) > 0
	case *events.TurnExtended:
		return f.Half == events.HalfAnswer && len(f.Settings) > 0
	case *events.SessionBranched:
		return true
	}
	return false
}

// repeated returns the append that a call repeats, or nil. applied is the session's last sequence.
func (c *calls) repeated(call services.Call, applied uint64, now time.Time) *calledAppend {
	if call.Key != "" {
		if a, has := c.byKey[byKey+call.Key]; has {
			return &a
		}
		return nil
	}
	if !call.Repeats || call.Body == "" || c.name != byBody+call.Body || c.end != applied ||
		now.Sub(c.newest.time) > repeatTime {
		return nil
	}
	return &c.newest
}

// begun returns the session that an earlier call has begun, if this one repeats that call; else "".
func (s *Service) begun(ctx context.Context, call services.Call) (string, error) {
	if !call.Repeats || call.Key != "" {
		return "", nil
	}
	return s.beginnings.of(ctx, s, byBody+call.Body)
}
