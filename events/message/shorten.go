package message

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Results returns the texts of the results of tools that stand among the message's parts.
func (m Message) Results() (texts []string) {
	for _, r := range m.results() {
		texts = append(texts, r.text)
	}
	return texts
}

// LongestResult returns the length of the longest result of a tool in the message, in bytes; 0 if it has none.
func (m Message) LongestResult() (most int) {
	if m.stored == nil {
		return 0
	}
	for _, text := range m.Results() {
		most = max(most, len(text))
	}
	if m.role == Tool || m.role == Function {
		most = max(most, len(m.Words()))
	}
	return most
}

// ShortenResults returns the message with every result of a tool that is longer than most bytes cut to its beginning
// and its end, with a mark between them that says how much is left out.
func (m Message) ShortenResults(most int) Message {
	if m.LongestResult() <= most {
		return m
	}
	if len(m.Results()) == 0 {
		return m.with(shortened(m.Words(), most), nil)
	}
	var parts []json.RawMessage
	for _, p := range m.stored.parts {
		if text := WordsIn(p.Content); p.Type == toolResult && len(text) > most {
			member := "content"
			if _, blocks := asMembers(p.raw)[member]; !blocks {
				member = "output" // of the AI SDK
			}
			p.raw = withMember(p.raw, member, shortened(text, most))
		}
		parts = append(parts, p.raw)
	}
	return m.with(parts, nil)
}

// shortened returns the beginning and the end of a text, two parts to one.
func shortened(text string, most int) string {
	head, tail := most*2/3, len(text)-most/3
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[%d characters are left out]\n%s",
		text[:head], utf8.RuneCountInString(text[head:tail]), text[tail:])
}
