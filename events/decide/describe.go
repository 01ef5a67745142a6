package decide

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// Describe asks for a session's title or metadata to change, or for its kind to be set.
type Describe struct {
	SessionID, RequestID string
	// Kind, where not empty, becomes the session's. A session keeps its kind for ever.
	Kind events.SessionKind
	// Title, where not nil, takes the place of the session's title; an empty one takes it away.
	Title *string
	// Metadata is laid over the session's. A nil value takes its key away.
	Metadata map[string]*string
	// CurrentBranch, where not nil, is the branch that the session's chat goes on in; "" is the session itself.
	CurrentBranch *string
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
	if c.Title == nil && c.Metadata == nil && c.Kind == "" && c.CurrentBranch == nil {
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

// On decides a description, which NormalDescribe has checked. The fact carries the whole description after
// the change, so that every earlier one can leave the log.
func (c Describe) On(s *session.State, partition int) Decision {
	hash := events.RequestHash(c.RequestID)
	switch {
	case s.Erased != 0:
		return Decision{Err: ErrSessionErased}
	case s.Described(hash):
		return Decision{RestsOn: s.Description().DescribedAt}
	}
	now := s.Description()
	if now.Kind != "" && c.Kind != "" && now.Kind != c.Kind {
		return Decision{Err: &Invalid{"kind", "is not the session's, which never changes"}}
	}
	f := &events.SessionDescribed{
		SessionID: s.SessionID, RequestID: c.RequestID, After: events.Position{Partition: partition, Seq: s.Applied},
		Title: now.Title, Metadata: now.Object(), Kind: cmp.Or(c.Kind, now.Kind),
		CurrentBranch: now.CurrentBranch,
	}
	if c.CurrentBranch != nil {
		f.CurrentBranch = *c.CurrentBranch
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
	if f.Earlier = s.Descriptions(); f.Earlier != nil {
		f.CreatedAt = &s.CreatedAt
	}
	return Decision{Facts: []events.Fact{f}, Expect: true}
}
