package conversation

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/turnledger/turnledger/events"
)

// Metadata returns the metadata that views may show. Events of other publishers may hold any keys. FallbackKey,
// FinishKey and UsageKey may always be shown with the values that Turnledger writes.
func (r Rules) Metadata(raw json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if r.MetadataKeys == nil || len(raw) == 0 || json.Unmarshal(raw, &m) != nil {
		return raw
	}
	if len(dropOthers(m, func(k string) bool { return slices.Contains(r.MetadataKeys, k) || isOwn(k, m[k]) })) == 0 {
		return raw // unchanged
	}
	return object(m)
}

// isOwn reports whether a member is one that Turnledger itself writes.
func isOwn(key string, value json.RawMessage) bool {
	switch v := string(value); key {
	case FallbackKey:
		return v == "true"
	case FinishKey:
		return v == `"length"` || v == `"content_filter"` || v == `"interrupted"`
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

// dropOthers removes the members that are not allowed, and returns their keys in order.
func dropOthers(m map[string]json.RawMessage, allowed func(key string) bool) (dropped []string) {
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

// Fill adds to a turn the texts of a fact that views may show. A nil fact adds none.
func (r Rules) Fill(t *Turn, f events.Fact) {
	texts := events.TextsOf(f)
	if texts.Question != nil {
		t.Question = r.Question(texts.Question)
	}
	if texts.Answer != nil {
		t.Answer, t.AnswerMetadata = texts.Answer, r.Metadata(texts.Metadata)
	}
	if texts.Extension != nil {
		r.extend(t, texts.Extension, texts.Metadata)
	}
}

// Extend adds to the question of a turn what an extension brings, for a slim state whose caller keeps the questions of
// pending turns.
func (s *State) Extend(t *Turn, f events.Fact) { s.rules().Fill(t, f) }
