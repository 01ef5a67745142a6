package session

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	"github.com/turnledger/turnledger/events"
)

// FallbackKey is the metadata key that marks a neutral question as a copy of the translated one.
const FallbackKey = "question_neutral_is_fallback"

// FinishKey is the metadata key that says why an incomplete answer ended: in OpenAI's words (length, content_filter),
// or interrupted.
const FinishKey = "finish_reason"

// Object returns metadata as JSON; nil where there is none.
func Object(m map[string]json.RawMessage) json.RawMessage {
	if len(m) == 0 {
		return nil
	}
	return events.Raw(m)
}

// Metadata returns the metadata that views may show. Events of other publishers may hold any keys. FallbackKey,
// FinishKey and UsageKey may always be shown with the values that Turnledger writes.
func (r Rules) Metadata(raw json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if r.MetadataKeys == nil || len(raw) == 0 || json.Unmarshal(raw, &m) != nil {
		return raw
	}
	if len(DropMembers(m, func(k string) bool { return slices.Contains(r.MetadataKeys, k) || isOwn(k, m[k]) })) == 0 {
		return raw // unchanged
	}
	return Object(m)
}

// finishWord matches why an answer ended, in the words of a model's endpoint.
var finishWord = regexp.MustCompile(`^"[a-z_]{1,40}"$`)

// isOwn reports whether a member is one that Turnledger itself writes.
func isOwn(key string, value json.RawMessage) bool {
	switch v := string(value); key {
	case FallbackKey:
		return v == "true"
	case FinishKey:
		return finishWord.MatchString(v)
	case UsageKey:
		_, ok := usageOf(value)
		return ok
	}
	return false
}

// UsageKey is the metadata key under which the tokens stand that a model used for the answer.
const UsageKey = "usage"

// Usage counts the tokens that a model used. Cached are among Input, and Reasoning among Output.
type Usage struct {
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_tokens,omitempty"`
	Output    int64 `json:"output_tokens"`
	Reasoning int64 `json:"reasoning_tokens,omitempty"`
}

// Plus returns the sum of two usages.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Cached + v.Cached, u.Output + v.Output, u.Reasoning + v.Reasoning}
}

// UsageOf returns the usage that metadata tells, or nil if it tells none.
func UsageOf(metadata json.RawMessage) *Usage {
	var m map[string]json.RawMessage
	if json.Unmarshal(metadata, &m) != nil {
		return nil
	}
	u, ok := usageOf(m[UsageKey])
	if !ok {
		return nil
	}
	return &u
}

// usageOf reads a usage; numbers that are no counts, and other members, make it none.
func usageOf(raw json.RawMessage) (u Usage, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if dec.Decode(&u) != nil || len(raw) == 0 || raw[0] != '{' {
		return u, false
	}
	return u, min(u.Input, u.Cached, u.Output, u.Reasoning) >= 0
}

// DropMembers removes the members that are not allowed, and returns their keys in order.
func DropMembers(m map[string]json.RawMessage, allowed func(key string) bool) (dropped []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !allowed(k) {
			delete(m, k)
			dropped = append(dropped, k)
		}
	}
	return dropped
}

// Allowed returns what views may show of a question by the state's rules.
func (s *State) Allowed(q *events.Question) *events.Question { return s.rules().Question(q) }

// Question returns what views may show of a question; the fact stays as it is.
func (r Rules) Question(q *events.Question) *events.Question {
	allowed := r.Metadata(q.Metadata)
	if len(allowed) == len(q.Metadata) {
		return q
	}
	own := *q
	own.Metadata = allowed
	return &own
}

// Fill adds to a turn the texts of facts, in their order, that views may show. A nil fact adds none.
func (r Rules) Fill(t *Turn, facts ...events.Fact) {
	mine := false
	for _, f := range facts {
		texts := events.TextsOf(f)
		if texts.Question != nil {
			t.Question = r.Question(texts.Question)
		}
		if texts.Answer != nil {
			t.Answer, t.AnswerMetadata, mine = texts.Answer, r.Metadata(texts.Metadata), false
		}
		if x := texts.Extension; x != nil {
			r.extend(t, x, texts.Metadata, mine)
			mine = mine || x.Half == events.HalfAnswer
		}
		if _, pruned := f.(*events.TurnPruned); pruned {
			t.undo()
		}
	}
}

// Extend adds to the question of a turn what an extension brings, for a slim state whose caller keeps the questions of
// pending turns.
func (s *State) Extend(t *Turn, f events.Fact) { s.rules().Fill(t, f) }

// WithoutMember returns metadata without one of its members, and the value of that member.
func WithoutMember(metadata json.RawMessage, key string) (others json.RawMessage, value string) {
	var m map[string]json.RawMessage
	if len(metadata) == 0 || json.Unmarshal(metadata, &m) != nil || m[key] == nil {
		return metadata, ""
	}
	value = string(m[key])
	delete(m, key)
	return Object(m), value
}
