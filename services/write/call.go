package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/feed"
	"github.com/turnledger/turnledger/services"
)

// repeatTime is for how long a client may repeat a call without a key of its own.
const repeatTime = 10 * time.Minute

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
		out[i] = fmt.Sprintf("%s.%d.%d.%d", c.Name(), i, len(bases), base)
	}
	return out
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
	newest newestAppend
}

// newestAppend is the newest append of a call, to the turn of its last event. answered: a model has answered it.
// over: the session's turns have changed since, other than by the answers of models.
type newestAppend struct {
	calledAppend

	call           string
	turn           uuid.UUID
	answered, over bool
}

// note notes the append that an event belongs to. Its first event is enough, since an append is in the log whole. The
// headers of an event are one string, of which a part would hold all in memory, so the names are cloned.
func (c *calls) note(e events.Recorded) (grown int) {
	turn := events.NamesOf(e.Fact).TurnID
	of, called := parseCall(e.Call)
	switch {
	case called && of.index == 0:
		a := calledAppend{e.Position.Seq, of.of, e.Time}
		c.newest = newestAppend{calledAppend: a, call: strings.Clone(of.call), turn: turn}
		if strings.HasPrefix(of.call, services.CallByKey) {
			grown = c.keep(c.newest.call, a)
		}
	case called:
		c.newest.turn = turn
	case answers(e.Fact):
		c.newest.answered = c.newest.answered || turn == c.newest.turn
	case !beside(e.Fact):
		c.newest.over = true
	}
	for call, a := range keptCalls(e) {
		call = strings.Clone(call)
		if a.first == e.Position.Seq {
			c.newest = newestAppend{calledAppend: a, call: call}
		}
		if strings.HasPrefix(call, services.CallByKey) {
			grown += c.keep(call, a)
		}
	}
	return grown
}

// sizeOfCall is what a call with a key takes in memory, its name apart.
const sizeOfCall = 128

// keep keeps the append of a call with a key, if it is the first of that key.
func (c *calls) keep(call string, a calledAppend) (grown int) {
	if c.byKey == nil {
		c.byKey = map[string]calledAppend{}
	}
	if _, has := c.byKey[call]; has {
		return 0
	}
	c.byKey[call] = a
	return sizeOfCall + len(call)
}

// The events of a turn that is pruned or redacted leave the log, and with them what names the calls that appended them.
// So the event that prunes or redacts it names these calls in its own header: keptMark, and then for each call the
// name, the first event and the number of events. Before them stands ownMark with the name of the call that prunes. A
// header has no room for more than mostKept.
const (
	keptMark = "+"
	ownMark  = "="
	mostKept = 500
)

// kept returns the header that names the calls with keys by which versions of a turn have come, and the call that takes
// from it, or "".
func (c *calls) kept(versions []*session.Turn, own string) string {
	var brought []uint64
	for _, t := range versions {
		brought = append(brought, t.Started, t.Final)
		for _, x := range t.Extensions() {
			brought = append(brought, x.Seq)
		}
	}
	slices.Sort(brought)
	var names []string
	for call, a := range c.byKey {
		if i, _ := slices.BinarySearch(brought, a.first); i < len(brought) && brought[i] <= a.last() {
			names = append(names, call)
		}
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Compare(c.byKey[y].first, c.byKey[x].first) })
	names = names[:min(len(names), mostKept)]
	for i, call := range names {
		names[i] = fmt.Sprintf("%s.%d.%d", call, c.byKey[call].first, c.byKey[call].of)
	}
	if own != "" {
		names = append([]string{ownMark + own}, names...)
	}
	if len(names) == 0 {
		return ""
	}
	return keptMark + strings.Join(names, ",")
}

// keptCalls yields the calls that the header of an event names which prunes or redacts a turn. A header may be
// anything.
func keptCalls(e events.Recorded) iter.Seq2[string, calledAppend] {
	return func(yield func(string, calledAppend) bool) {
		list, kept := strings.CutPrefix(e.Call, keptMark)
		if !kept {
			return
		}
		for one := range strings.SplitSeq(list, ",") {
			if own, is := strings.CutPrefix(one, ownMark); is {
				if len(own) > 1 && !yield(own, calledAppend{first: e.Position.Seq, of: 1, time: e.Time}) {
					return
				}
				continue
			}
			parts := strings.Split(one, ".")
			if len(parts) != 3 || !strings.HasPrefix(parts[0], services.CallByKey) {
				continue
			}
			first, wrong := strconv.ParseUint(parts[1], 10, 64)
			of, bad := strconv.Atoi(parts[2])
			if wrong != nil || bad != nil || first == 0 || first >= e.Position.Seq || of < 1 || of > mostAppended {
				continue
			}
			if !yield(parts[0], calledAppend{first: first, of: of}) {
				return
			}
		}
	}
}

// mostAppended is how many events an atomic append may have.
const mostAppended = 1000

// keepingCalls has the event that a decision prunes or redacts a turn with name the calls by which the turn has come.
// own is the call that does it, or "".
func (w *writing) keepingCalls(
	st *session.State, turn uuid.UUID, own string, d decide.Decision,
) decide.Decision {
	w.calls = nil
	if t := st.Turn(turn); t != nil && w.watched != nil && len(d.Facts) == 1 {
		if kept := w.watched.calls.kept(st.Chain(t), own); kept != "" {
			w.calls = []string{kept}
		}
	}
	return d
}

// answers reports whether a fact, if it is of no call, is the answer of a model.
func answers(f events.Fact) bool {
	texts := events.TextsOf(f)
	answers := texts.Answer != nil || texts.Extension != nil && texts.Extension.Half == events.HalfAnswer
	return answers && len(texts.Settings) > 0
}

// beside reports whether a fact leaves the turns of its session as they are, such as a description, a link, or the mark
// of a branch.
func beside(f events.Fact) bool {
	_, resets := f.(*events.SessionReset)
	return f != nil && !resets && events.NamesOf(f).TurnID == uuid.Nil
}

// repeated returns the append that a call repeats, or nil.
func (c *calls) repeated(call services.Call, now time.Time) *calledAppend {
	if call.Key != "" {
		if a, has := c.byKey[call.Name()]; has {
			return &a
		}
		return nil
	}
	again := call.Repeats && now.Sub(c.newest.time) <= repeatTime || call.Unanswered && !c.newest.answered
	if !again || call.Body == "" || c.newest.call != call.Name() || c.newest.over {
		return nil
	}
	return &c.newest.calledAppend
}

// begun returns the session that an earlier call has begun, if this one repeats that call, and nothing was added to the
// session since; else it fails with services.ErrNotRepeated.
func (s *Service) begun(
	ctx context.Context, call services.Call, now time.Time,
) (done services.AddedMessages, err error) {
	if !call.Repeats || call.Key != "" {
		return done, services.ErrNotRepeated
	}
	b := &beginning{ctx: ctx, call: call.Name(), since: now.Add(-repeatTime)}
	together := func(waiting []*beginning) int { return len(waiting) }
	if err := s.begins.Do(ctx, b, together, s.seek); err != nil {
		return done, jetlog.Unavailable("", err)
	}
	if b.err != nil || b.session == "" {
		return done, cmp.Or(b.err, services.ErrNotRepeated)
	}
	call.Only = true
	done, err = s.AddMessages(ctx, decide.AddMessages{SessionID: b.session, Now: now}, call)
	if errors.Is(err, decide.ErrSessionErased) {
		err = services.ErrNotRepeated
	}
	return done, err
}

// beginning is a search for the session that a call has begun last. A client that repeats such a call does not know the
// session's id.
type beginning struct {
	ctx     context.Context //nolint:containedctx // of one call
	call    string
	since   time.Time
	session string
	begun   time.Time
	err     error
}

// seek reads what the log holds since the first of some calls could have begun a session, once for all of them. Clients
// repeat such calls when they got no answer, which is seldom.
func (s *Service) seek(all []*beginning, _ func()) {
	ctx, done := context.WithTimeout(context.WithoutCancel(all[0].ctx), seekTime)
	defer done()
	var err error
	for p := range s.log.Partitions() {
		if err = cmp.Or(err, s.seekIn(ctx, p, all)); err != nil {
			break
		}
	}
	for _, b := range all {
		b.err = err
	}
}

// seekTime bounds a search for what calls have begun.
const seekTime = 20 * time.Second

func (s *Service) seekIn(ctx context.Context, partition int, all []*beginning) error {
	head, err := s.log.Head(ctx, partition)
	if err != nil {
		return err
	}
	after, err := s.log.SeqAt(ctx, partition, all[0].since)
	if err != nil {
		return err
	}
	from := events.Position{Partition: partition, Seq: after}
	opts := jetlog.TailOptions{HeadersOnly: true}
	for m, err := range feed.Between(ctx, s.log, from, head.Seq, opts, feed.Fast) {
		if err != nil {
			return errors.Join(jetlog.ErrUnavailable, err)
		}
		of, called := parseCall(m.Call())
		id, identity, err := events.ParseSubject(m.Subject)
		if !called || m.Type() != events.TypeSessionDescribed || identity || err != nil {
			continue
		}
		for _, b := range all {
			if b.call == of.call && m.Time.After(b.begun) && m.Time.After(b.since) {
				b.session, b.begun = strings.Clone(id), m.Time
			}
		}
	}
	return nil
}

// placeOf returns the place of the turn of the last fact of a call, which a fact of the append may have opened.
func (w *additions) placeOf(a *adding) uint64 {
	if a.plan.Place != 0 || len(a.plan.Facts) == 0 {
		return a.plan.Place
	}
	turn := events.NamesOf(a.plan.Facts[len(a.plan.Facts)-1]).TurnID
	for _, one := range w.all {
		for i, f := range one.plan.Facts {
			opens := events.TextsOf(f).Question != nil && events.NamesOf(f).TurnID == turn
			if opens && one.repeats == nil {
				return w.own.first + uint64(one.first+i) //nolint:gosec // an index
			}
		}
	}
	return 0
}
