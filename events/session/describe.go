package session

import (
	"encoding/json"
	"slices"
	"time"
	"unique"

	"github.com/turnledger/turnledger/events"
)

// HeldDescription holds a session's description, and where a branch comes from. It is one word, since few sessions have
// either; two are equal where what they hold is.
type HeldDescription struct{ handle unique.Handle[held] }

type held struct {
	description Description
	fork        Fork
}

func hold(h held) HeldDescription {
	if h == (held{}) {
		return HeldDescription{}
	}
	return HeldDescription{unique.Make(h)}
}

func (d HeldDescription) held() held {
	if d == (HeldDescription{}) {
		return held{}
	}
	return d.handle.Value()
}

// DescribedBy returns the HeldDescription that holds a description.
func DescribedBy(d Description) HeldDescription { return hold(held{description: d}) }

// ForkedBy returns the HeldDescription that holds the same description, and a fork.
func (d HeldDescription) ForkedBy(f Fork) HeldDescription { return hold(held{d.held().description, f}) }

// Description returns the description; the zero value where there is none.
func (d HeldDescription) Description() Description { return d.held().description }

// Fork returns where the session comes from; the zero value if it is no branch.
func (d HeldDescription) Fork() Fork { return d.held().fork }

// Description is the title and the metadata of a session. The zero value is that of a session without.
type Description struct {
	// DescribedAt is the sequence of the event that states it.
	DescribedAt uint64
	Title       string
	// Metadata is a JSON object whose values are strings, with its keys in order; "" for an empty one. A text, so that
	// descriptions can be compared.
	Metadata string
	Kind     events.SessionKind
	// CurrentBranch is the branch that the session's chat goes on in, or "".
	CurrentBranch string
}

// describing is what a state remembers of the requests of descriptions, for retries.
type describing struct {
	digest uint64
	// last is the hash of the request of the description that stands; earlier are those before it.
	last    string
	earlier []string
}

// has reports whether a request, by its hash, has described the session.
func (d *describing) has(hash string) bool {
	return d != nil && (d.last == hash || slices.Contains(d.earlier, hash))
}

// Described reports whether a request, by its hash, has described the session.
func (s *State) Described(hash string) bool { return s.more().described.has(hash) }

// Descriptions returns the hashes of the requests that have described the session, those before the one that stands
// first; nil if there is none.
func (s *State) Descriptions() []string {
	d := s.more().described
	if d == nil {
		return nil
	}
	return events.EarlierRequests(d.earlier, d.last)
}

// Object returns the metadata as a map of the caller's own, which is empty where there is none.
func (d Description) Object() map[string]string {
	m := map[string]string{}
	if d.Metadata != "" {
		_ = json.Unmarshal([]byte(d.Metadata), &m) // it was written by MetadataText
	}
	return m
}

// describe lets the newest description stand. A description that does not count is of a request that the log has, was
// decided before the one that stands, or contradicts what the log still says of those before it.
func (s *State) describe(e events.Recorded, f *events.SessionDescribed) Change {
	old, hash := s.more().described, events.RequestHash(f.RequestID)
	switch {
	case f.After.Seq >= e.Position.Seq:
		return anomaly(CodeWrongPosition)
	case old.has(hash):
		return stateAgain(old.last != hash || old.digest == e.Digest)
	case f.After.Seq < s.Description().DescribedAt:
		return anomaly(CodeDescriptionReplaced)
	case s.contradicts(f, e.Time):
		return anomaly(CodeSecondDescription)
	}
	more := s.more()
	more.described = &describing{digest: e.Digest, last: hash, earlier: f.Earlier}
	s.rare = &more
	now := Description{e.Position.Seq, f.Title, MetadataText(f.Metadata), f.Kind, f.CurrentBranch}
	s.HeldDescription = DescribedBy(now).ForkedBy(s.Fork())
	switch {
	case f.CreatedAt != nil:
		if f.CreatedAt.Before(s.CreatedAt) {
			s.hadBegun()
		}
		s.CreatedAt = f.CreatedAt.UTC()
	case s.CreatedAt.IsZero():
		s.CreatedAt = e.Time
	}
	if f.Kind != "" {
		s.liftSilences()
	}
	return Change{Kind: Described}
}

// liftSilences moves the boundary back to the last reset: a session with a kind has no other boundary. Silences before
// the kind was set count no more, since the description that set it may have left the log.
func (s *State) liftSilences() {
	was := s.Boundary
	if s.setSilence(0); s.Boundary == was {
		return
	}
	s.ShownFinalized, s.ShownPending = 0, 0
	for _, t := range s.Turns {
		switch t.Status {
		case Finalized:
			s.ShownFinalized += s.shownCount(t)
		case Pending:
			s.ShownPending += s.shownCount(t)
		case Redacted, Replaced:
		}
	}
}

// stateAgain judges a description whose request the log has.
func stateAgain(same bool) Change {
	if same {
		return Change{Kind: Duplicate}
	}
	return anomaly(CodeSecondDescription)
}

// contradicts reports whether a description does not fit what is left of the session: a session begins no later than
// any of its events, and a description knows of those before it, and keeps the kind.
func (s *State) contradicts(f *events.SessionDescribed, recorded time.Time) bool {
	if f.CreatedAt != nil && (f.CreatedAt.After(recorded) || s.Found() && f.CreatedAt.After(s.CreatedAt)) {
		return true
	}
	if kind := s.Description().Kind; kind != "" && f.Kind != kind {
		return true
	}
	old := s.more().described
	return old != nil && events.KeepsAllRequests(f.Earlier) && !slices.Contains(f.Earlier, old.last)
}

// MetadataText returns the form of metadata in a Description.
func MetadataText(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	return string(events.Raw(m))
}
