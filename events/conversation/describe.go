package conversation

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
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
}

// Describe asks for a session's title or metadata to change, or for its kind to be set.
type Describe struct {
	SessionID, RequestID string
	// Kind, where not empty, becomes the session's. A session keeps its kind for ever.
	Kind events.SessionKind
	// Title, where not nil, takes the place of the session's title; an empty one takes it away.
	Title *string
	// Metadata is laid over the session's. A nil value takes its key away.
	Metadata map[string]*string
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

// NormalDescribe checks a description by the rules that need no state.
func NormalDescribe(c Describe) (Describe, error) {
	if err := ValidIDs("session_id", c.SessionID, "request_id", c.RequestID); err != nil {
		return c, err
	}
	switch c.Kind {
	case "", events.KindConversation, events.KindResponse:
	default:
		return c, &Invalid{"kind", "must be conversation or response"}
	}
	if c.Title == nil && c.Metadata == nil && c.Kind == "" {
		return c, &Invalid{"title", "or metadata is required: send what is to change"}
	}
	if c.Title != nil && utf8.RuneCountInString(*c.Title) > events.MaxTitle {
		return c, &Invalid{"title", "has more than 200 characters"}
	}
	if c.Title != nil && strings.ContainsRune(*c.Title, 0) {
		return c, &Invalid{"title", "holds the character U+0000"}
	}
	for k, v := range c.Metadata {
		switch n := utf8.RuneCountInString(k); {
		case n == 0 || n > events.MaxMetadataKey:
			return c, &Invalid{"metadata", "has a key that is empty or longer than 64 characters"}
		case v != nil && utf8.RuneCountInString(*v) > events.MaxMetadataValue:
			return c, &Invalid{"metadata", "has a value of more than 512 characters"}
		case strings.ContainsRune(k, 0), v != nil && strings.ContainsRune(*v, 0):
			return c, &Invalid{"metadata", "holds the character U+0000"}
		}
	}
	return c, nil
}

// DecideDescribe decides a description, which NormalDescribe has checked. The fact carries the whole description after
// the change, so that every earlier one can leave the log.
func (s *State) DecideDescribe(c Describe, partition int) Decision {
	hash := events.RequestHash(c.RequestID)
	switch {
	case s.Erased != 0:
		return Decision{Err: ErrSessionErased}
	case s.more().described.has(hash):
		return Decision{RestsOn: s.Description().DescribedAt}
	}
	now := s.Description()
	if now.Kind != "" && c.Kind != "" && now.Kind != c.Kind {
		return Decision{Err: &Invalid{"kind", "is not the session's, which never changes"}}
	}
	f := &events.SessionDescribed{
		SessionID: s.SessionID, RequestID: c.RequestID, After: events.Position{Partition: partition, Seq: s.Applied},
		Title: now.Title, Metadata: now.Object(), Kind: cmp.Or(c.Kind, now.Kind),
	}
	if c.Title != nil {
		f.Title = *c.Title
	}
	for k, v := range c.Metadata {
		if v == nil {
			delete(f.Metadata, k)
		} else {
			f.Metadata[k] = *v
		}
	}
	if len(f.Metadata) > events.MaxMetadataKeys {
		return Decision{Err: &Invalid{"metadata", "would have more than 16 keys: take others away first"}}
	}
	if d := s.more().described; d != nil {
		f.Earlier, f.CreatedAt = events.EarlierRequests(d.earlier, d.last), &s.CreatedAt
	}
	return Decision{Facts: []events.Fact{f}, Expect: true}
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
	now := Description{e.Position.Seq, f.Title, MetadataText(f.Metadata), f.Kind}
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
	return string(encode(m))
}
