package session

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// Fork says where a branch comes from. The zero value is that of a session which is no branch.
type Fork struct {
	// ForkedAt is the sequence of the event that states it.
	ForkedAt              uint64
	RequestID, From, Root string
	// Lineage is a JSON array of events.Segment; "" for none. A text, so that forks can be compared.
	Lineage string
}

// Segments returns what the branch shares, oldest first.
func (f Fork) Segments() (list []events.Segment) {
	if f.Lineage != "" {
		_ = json.Unmarshal([]byte(f.Lineage), &list) // it was written by ForkOf
	}
	return list
}

// Through returns the last turn that the branch shares, or uuid.Nil.
func (f Fork) Through() uuid.UUID {
	if list := f.Segments(); len(list) > 0 {
		return list[len(list)-1].ThroughTurnID
	}
	return uuid.Nil
}

// ForkOf returns the fork that an event at a sequence states.
func ForkOf(f *events.SessionForked, seq uint64) Fork {
	out := Fork{ForkedAt: seq, RequestID: f.RequestID, From: f.FromSessionID, Root: f.Root}
	if len(f.Segments) > 0 {
		out.Lineage = string(events.Raw(f.Segments))
	}
	return out
}

// Made reports whether a mark made a session what it is: whether the session's fork is the one that the mark states. A
// mark may state another, or one that no session has: its fork lost a race, its writer was killed before the fork, or
// a foreign publisher wrote it. Such a mark changes nothing. fork is that of the marked session; the zero value, that
// of no branch, is never made by a mark.
func Made(mark *events.SessionBranched, fork Fork) bool {
	return fork.ForkedAt != 0 && fork == ForkOf(mark.Fork(), fork.ForkedAt)
}

// Branch is the mark of a branch on the session that was forked.
type Branch struct {
	// SessionID is the branch, and Root its root, as the mark states them.
	SessionID, Root string
	// MarkedAt is the sequence of the mark.
	MarkedAt uint64
	// digest is that of the mark, and fork that of the fork that it states.
	digest, fork uint64
}

// Made reports whether the mark made a session what it is (see the function Made). Of an erased session nobody can tell
// any more.
func (b Branch) Made(s *State) bool {
	fork := s.Fork()
	return s.SessionID == b.SessionID && fork.ForkedAt != 0 && fork.digest() == b.fork
}

// digest is a digest of what a fork states, equal in this process alone.
func (f Fork) digest() uint64 {
	f.ForkedAt = 0
	return events.Digest(events.Raw(f))
}

// rare is what few sessions have. It is replaced, never changed, since clones share it.
type rare struct {
	described *describing
	// marks are those of its branches, by their requests.
	marks map[string]Branch
	// segments are those that Inherit has added.
	segments []events.Segment
	// summaries are the summaries that counted when they were written. notStanding is how many of them don't stand.
	summaries   []Summary
	notStanding int
	// voided are the ids of summaries that were void and have left the log, or are about to.
	voided []uuid.UUID
}

func (s *State) more() rare {
	if s.rare == nil {
		return rare{}
	}
	return *s.rare
}

// Branch returns the mark of a request.
func (s *State) Branch(requestID string) (Branch, bool) {
	b, marked := s.more().marks[requestID]
	return b, marked
}

// LastBranch returns the newest mark of a request that begins with a prefix: the request, and the branch.
func (s *State) LastBranch(prefix string) (requestID, sessionID string) {
	at := uint64(0)
	for request, b := range s.more().marks {
		if b.MarkedAt > at && strings.HasPrefix(request, prefix) {
			at, requestID, sessionID = b.MarkedAt, request, b.SessionID
		}
	}
	return requestID, sessionID
}

// Branches returns the marks of branches that were forked from this session, in no order. A mark may have made none
// (Branch.Made).
func (s *State) Branches() []Branch { return slices.Collect(maps.Values(s.more().marks)) }

// HasBranches reports whether Branches returns any.
func (s *State) HasBranches() bool { return len(s.more().marks) > 0 }

// BranchesBy returns those of Branches that some requests made.
func (s *State) BranchesBy(by func(requestID string) bool) (out []Branch) {
	for request, b := range s.more().marks {
		if by(request) {
			out = append(out, b)
		}
	}
	return out
}

// RootID returns the root of the session: of a branch that of its fork, else the session itself. An erased branch has
// forgotten its root.
func (s *State) RootID() string { return cmp.Or(s.Fork().Root, s.SessionID) }

// Lends returns the identity of the session's branches, if it is their root. An erased session lends none: its link
// stays for the erasure of the identity alone.
func (s *State) Lends() string {
	if s.Erased != 0 {
		return ""
	}
	return s.Identity
}

// forked begins a branch. It counts only as the first fact of an empty session.
func (s *State) forked(e events.Recorded, f *events.SessionForked) Change {
	now := ForkOf(f, s.Fork().ForkedAt)
	switch {
	case s.Fork().ForkedAt != 0 && s.Fork() == now:
		return Change{Kind: Duplicate}
	case s.Found() || s.Identity != "":
		return anomaly(CodeSecondFork)
	}
	s.HeldDescription = s.ForkedBy(ForkOf(f, e.Position.Seq))
	return Change{Kind: Forked}
}

// branched notes a mark; the first of its request stands. A mark outlives the erasure of its session, so it may hold
// nothing else.
func (s *State) branched(e events.Recorded, f *events.SessionBranched) Change {
	if f.At.Seq >= e.Position.Seq {
		return anomaly(CodeWrongPosition)
	}
	exact, err := events.Encode(f, e.Time)
	if err != nil || events.Digest(exact.Body) != e.Digest {
		return anomaly(CodeSecondFork)
	}
	if old, marked := s.more().marks[f.RequestID]; marked {
		if old.digest == e.Digest {
			return Change{Kind: Duplicate}
		}
		return anomaly(CodeSecondFork)
	}
	now := s.more()
	now.marks = maps.Clone(now.marks) // since clones share the old one
	if now.marks == nil {
		now.marks = map[string]Branch{}
	}
	now.marks[f.RequestID] = Branch{
		SessionID: f.ChildSessionID, Root: f.Root, MarkedAt: e.Position.Seq,
		digest: e.Digest, fork: ForkOf(f.Fork(), 0).digest(),
	}
	s.rare = &now
	return Change{Kind: Branched}
}

// unfork takes back a fork that was folded as the first fact of a session, once a tombstone shows that the session had
// a turn before: the turn's events have left the log.
func (s *State) unfork(stones []events.Tombstone) {
	at := s.Fork().ForkedAt
	if slices.ContainsFunc(stones, func(t events.Tombstone) bool { return t.Place.Seq < at }) {
		s.HeldDescription = s.ForkedBy(Fork{})
	}
}

// hadBegun takes back a fork that was folded as the first fact of a session, once a description shows that the session
// had begun before: the description that it replaces has left the log. Then the fork was no activity either, and no
// silence followed it.
func (s *State) hadBegun() {
	if s.Fork().ForkedAt == 0 {
		return
	}
	s.HeldDescription = s.ForkedBy(Fork{})
	if s.LastActive.Equal(s.CreatedAt) {
		s.LastActive = time.Time{}
	}
	if !slices.ContainsFunc(s.Turns, func(t *Turn) bool { return t.Place <= s.silence }) {
		s.setSilence(0)
	}
}

// A place in a composed session has the number of its segment in its upper bits, so that shared turns stand before the
// branch's own in the order of the lineage. The other 48 bits are the sequence in the segment's partition: a partition
// that got a million events a second would need nine years to outgrow them.
const (
	segmentBits = 48
	sequence    = 1<<segmentBits - 1
)

func lifted(segment int, place uint64) uint64 {
	return uint64(segment)<<segmentBits | place //nolint:gosec // at most events.MaxSegments
}

// OwnBoundary returns the boundary as far as it stands in the session itself, as a sequence of its partition.
func (s *State) OwnBoundary() uint64 {
	if s.Boundary>>segmentBits != uint64(len(s.more().segments)) {
		return 0
	}
	return s.Boundary & sequence
}

// Origin returns the session that a turn stands in, the turn's own partition, and whether a branch inherits the turn
// from there. partition is that of the session that was read.
func (s *State) Origin(t *Turn, partition int) (sessionID string, of int, inherited bool) {
	if list := s.more().segments; segmentOf(t) < len(list) {
		g := list[segmentOf(t)]
		return g.SessionID, g.Through.Partition, true
	}
	return s.SessionID, partition, false
}

// BroughtBy returns the index of the turn that the event at a position opened, answered, extended or pruned, or -1.
// partition is that of the session that was read.
func (s *State) BroughtBy(at events.Position, partition int) int {
	list := s.Turns
	if len(s.more().segments) == 0 {
		end, _ := slices.BinarySearchFunc(list, at.Seq+1, func(t *Turn, seq uint64) int {
			return cmp.Compare(t.Place, seq)
		})
		list = list[:end]
	}
	for i, t := range slices.Backward(list) {
		if _, of, _ := s.Origin(t, partition); of == at.Partition && t.BroughtBy(at.Seq) {
			return i
		}
	}
	return -1
}

// PlaceOf returns the place of a turn in the session that it stands in.
func PlaceOf(t *Turn) uint64 { return t.Place & sequence }

// segmentOf returns the number of the segment of a turn of a composed session.
func segmentOf(t *Turn) int { return int(t.Place >> segmentBits) }

// Shared returns the turns of a session that a segment of a branch shares, the newest first, each with all its versions
// and its tombstone. Turns that were pending at the fork are not among them. s must hold all its turns. A session that
// is not of the branch's root shares nothing, whatever a foreign publisher has written, nor does nil.
func (s *State) Shared(root string, g events.Segment) iter.Seq[*Turn] {
	return func(yield func(*Turn) bool) {
		if !s.isOf(root) {
			return
		}
		last := s.Turn(g.ThroughTurnID)
		if last == nil {
			return
		}
		end := len(s.Turns)
		for end > 0 && s.Turns[end-1].Place > last.Place {
			end--
		}
		for end > 0 {
			first := end - 1 // the first version
			for first > 0 && s.Turns[first-1].Place == s.Turns[first].Place {
				first--
			}
			if final := s.Turns[first].Final; final != 0 && final <= g.Through.Seq {
				for _, t := range slices.Backward(s.Turns[first:end]) {
					if !yield(t) {
						return
					}
				}
			}
			end = first
		}
	}
}

// SharedIDs returns the turns of the session that a segment of a branch of a root shares, and that are neither redacted
// nor replaced.
func (s *State) SharedIDs(root string, g events.Segment) iter.Seq[uuid.UUID] {
	return func(yield func(uuid.UUID) bool) {
		for t := range s.Shared(root, g) {
			if t.Status == Finalized && !yield(t.ID) {
				return
			}
		}
	}
}

// isOf reports whether the session is the root of a branch, or a branch of it. A session that is no branch has no root.
func (s *State) isOf(root string) bool {
	return s != nil && root != "" && (s.SessionID == root || s.Fork().Root == root)
}

// Shares reports whether a segment of a branch of a root shares a turn of the session.
func (s *State) Shares(root string, g events.Segment, id uuid.UUID) bool {
	for t := range s.Shared(root, g) {
		if t.ID == id {
			return true
		}
	}
	return false
}

// Inherit adds to a branch the turns that it shares. from holds the sessions of list, its segments, each with all its
// turns, or nil. Those that are not of the branch's root share nothing. The turns of s must be the caller's own, those
// of from are copied, each without what extended it after the fork. Only the newest shown turns that are shared are
// taken, as many as most says, with all that stand between them; the counts are those of all. A state that leaves turns
// out is not Whole.
func (s *State) Inherit(list []events.Segment, from []*State, most int) {
	s.liftOwn(list)
	now := s.more()
	now.segments = list
	s.rare = &now
	root := s.Fork().Root
	all := 0
	for _, o := range from {
		if o != nil {
			all += len(o.Turns)
		}
	}
	copies := make([]Turn, 0, min(all, max(most, 0))) // the newest first
	taken, whole := 0, true
	for i, g := range slices.Backward(list) {
		for t := range from[i].Shared(root, g) {
			shown := t.Status == Finalized && lifted(i, t.Place) > s.Boundary
			if t.Status == Finalized {
				s.Finalized++
			}
			if shown {
				s.ShownFinalized++
				taken++
			}
			if whole = taken <= most; !whole {
				continue
			}
			t.shareAnswer()
			c := *t
			c.shorten(g.Through.Seq)
			c.Place = lifted(i, t.Place)
			copies = append(copies, c)
		}
	}
	s.Whole = s.Whole && whole
	turns := make([]*Turn, 0, len(copies)+len(s.Turns))
	for i := range slices.Backward(copies) {
		turns = append(turns, &copies[i])
	}
	s.Turns = append(turns, s.Turns...)
	s.makeIndex()
	s.liftSummaries()
}

// InheritThen adds to a branch, as it was at a moment, the turns that it shared then. then holds the sessions of its
// segments as they were at that moment, and today as they are now; both may hold nil. Today's tell which of them are of
// the branch's root.
func (s *State) InheritThen(then, today []*State) {
	fork := s.Fork()
	then = slices.Clone(then)
	for i, now := range today {
		if !now.isOf(fork.Root) {
			then[i] = nil
		}
	}
	s.Inherit(heldSegments(fork.Segments(), then, today), then, math.MaxInt)
}

// heldSegments returns the segments of a branch as older states of their sessions can show them. A redaction may have
// taken the last shared turn out of the log, so that no older state has it: then the segment ends with the turn before
// it. then holds the older states, and today, which has the tombstones, those of now; both may hold nil.
func heldSegments(list []events.Segment, then, today []*State) []events.Segment {
	list = slices.Clone(list)
	for i, g := range list {
		if then[i] == nil || today[i] == nil || then[i].Turn(g.ThroughTurnID) != nil {
			continue
		}
		gone := today[i].Turn(g.ThroughTurnID)
		if gone == nil {
			continue
		}
		for _, t := range slices.Backward(then[i].Turns) {
			if t.Place < gone.Place {
				list[i].ThroughTurnID = t.ID
				break
			}
		}
	}
	return list
}

// liftOwn lifts the session's own places behind those of its segments, and sets the boundary that holds in the branch:
// its own, or else the last that held in a segment when it was forked.
func (s *State) liftOwn(list []events.Segment) {
	for _, t := range s.Turns {
		t.Place = lifted(len(list), t.Place)
	}
	if s.Boundary != 0 {
		s.Boundary = lifted(len(list), s.Boundary)
		return
	}
	for i, g := range slices.Backward(list) {
		if g.After != nil && g.After.Seq != 0 {
			s.Boundary = lifted(i, g.After.Seq)
			return
		}
	}
}

// Lineage returns the segments of a branch that shares turns up to last. own are those of the session itself.
func (s *State) Lineage(own []events.Segment, last *Turn, partition int) []events.Segment {
	n := segmentOf(last)
	g := events.Segment{SessionID: s.SessionID, ThroughTurnID: last.ID, Through: events.Position{Partition: partition}}
	if n < len(own) { // the last shared turn is itself inherited
		g = own[n]
		g.ThroughTurnID, g.Through.Seq = last.ID, 0
	} else if s.Boundary>>segmentBits == uint64(n) && s.Boundary != 0 { //nolint:gosec // not negative
		g.After = &events.Position{Partition: partition, Seq: s.Boundary & sequence}
	}
	var place uint64
	for _, t := range s.Turns {
		if segmentOf(t) != n || t.Place > last.Place {
			continue
		}
		if t.Place != place { // the first version
			place = t.Place
			g.Through.Seq = max(g.Through.Seq, t.Final)
		}
		if t.extended != nil {
			g.Through.Seq = max(g.Through.Seq, t.extended.seq)
		}
	}
	return append(slices.Clone(own[:n]), g)
}
