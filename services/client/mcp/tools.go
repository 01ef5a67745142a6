package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnledger/turnledger/services/client"
)

// tool is a call of the API as a tool: its arguments are the call's members.
type tool struct {
	name, title, about string
	method, path       string
	takes              *jsonschema.Schema
	writes             bool
	// head are the members that the answer has once. records is the name of the list that it is shown in.
	head    []member
	records string
	shows   []member
	// read reads what the API answered.
	read func(json.RawMessage) page
}

// members of records.
var (
	turnMembers = membersOf("session_id", "turn_id", "identity_id", "request_id", "status", "position", "created_at",
		"finalized_at", "deleted_at", "record_version integer", "replaced_by_turn_id", "inherited boolean",
		"duplicate boolean", "question_neutral text", "question_translated text", "question_messages text",
		"answer_neutral text", "answer_translated text", "answer_messages text", "pipeline_name text",
		"consultant text", "repository text", "metadata text")
	hitMembers = membersOf("session_id", "turn_id", "identity_id", "half", "created_at", "position", "score number",
		"snippet text")
	sessionMembers = membersOf("session_id", "identity_id", "turns integer", "pending integer", "created_at",
		"last_active_at", "position", "forked_from.session_id", "forked_from.turn_id", "last_turn.turn_id",
		"last_turn.status", "title text", "metadata text", "last_turn.question_neutral text",
		"last_turn.answer_neutral text")
	messageMembers = membersOf("role", "content text")
	contextMembers = membersOf("session_found boolean", "history_messages integer", "history_turns integer",
		"dropped_turns integer", "summary.summary_id", "summary.through_turn_id", "summary.turns integer",
		"rewrite_fallback boolean", "position", "source", "warnings array")
	eventMembers = membersOf("event", "position", "recordedat", "id", "redacted boolean", "problem", "usage object")
	seenMembers  = membersOf("session_id", "turn_id", "position", "seen", "inherited boolean")
)

var readers = []tool{
	{
		name: "search_turns", title: "Search past conversations", method: http.MethodPost, path: "/search",
		about: "Find turns (a question and its answer) of recorded conversations by words or by meaning. " +
			"get_turns shows the whole texts of a session that has a hit.",
		takes: arguments("query", "query: words that must all be there; \"a phrase\", -without, begin*; "+
			"or with meaning, a question",
			"mode: words (exact), meaning (nearest first) or hybrid", "in: question, answer or both",
			"identity_id: only conversations of this identity; needed by keys without events:read",
			"session_id: only this session", "since: RFC 3339", "until: RFC 3339", "language: neutral or translated",
			"limit integer: hits, at most 100", "min_score number", "cursor", "min_position"),
		head: membersOf("mode", "position", "lag_events integer"), records: "hits", shows: hitMembers,
	},
	{
		name: "list_sessions", title: "List conversations", method: http.MethodPost, path: "/sessions/query",
		about: "List recorded conversations, the one that was active last first, with titles and their last turns.",
		takes: arguments("", "identity_id: only conversations of this identity; needed by keys without events:read",
			"since: active at or after, RFC 3339", "until: RFC 3339", "title: a part of the title",
			"metadata object: members that the session's metadata has", "limit integer: at most 200", "cursor",
			"min_position"),
		records: "sessions", shows: sessionMembers,
	},
	{
		name: "get_turns", title: "Read a conversation", method: http.MethodGet,
		path:  "/sessions/{session_id}/turns",
		about: "Show the turns of a conversation, newest last. The cursor leads to older turns.",
		takes: arguments("session_id", "session_id", "limit integer: turns; 20 by default, at most 100",
			"status: finalized (default), pending, or all, with tombstones and replaced versions", "cursor",
			"min_position"),
		records: "turns", shows: turnMembers,
	},
	{
		name: "get_context", title: "Build a prompt", method: http.MethodPost, path: "/sessions/{session_id}/context",
		about: "Show the messages that a model would be sent with the next message of a conversation, or as of then.",
		takes: arguments("session_id message", "session_id", "message: the user's current message",
			"turn_id: the turn that is being answered", "system_prompt", "max_messages integer: of history; 20",
			"max_tokens integer: of history", "idle_timeout: only turns since a silence that long, such as 30m",
			"language: neutral or translated", "include_pending boolean", "memory boolean", "rewrite boolean",
			"summary boolean", "identity_id: whose memory", "conversation_history array",
			"format: openai or anthropic", "as_of object: {position} or {time}", "cursor", "min_position"),
		head: contextMembers, records: "messages", shows: messageMembers, read: readContext,
	},
	{
		name: "explain_turn", title: "Explain an answer", method: http.MethodGet,
		path: "/sessions/{session_id}/turns/{turn_id}/explanation",
		about: "Show what the log holds of a turn, and which turns before it its prompt could see, and why not the " +
			"others.",
		takes: arguments("session_id turn_id", "session_id", "turn_id",
			"max_messages integer: as the prompt was asked for; 20", "max_tokens integer", "language",
			"include_pending boolean", "summary boolean", "cursor"),
		head: membersOf("session_id", "turn_id", "inherited boolean", "as_of", "history_messages integer",
			"history_turns integer", "dropped_turns integer"),
		records: "parts", shows: slices.Concat(eventMembers, seenMembers, messageMembers), read: readExplanation,
	},
}

var recorder = tool{
	name: "record_turn", title: "Record a turn", method: http.MethodPost, path: "/sessions/{session_id}/turns",
	about: "Record a question and its answer. The same request_id again records nothing.", writes: true,
	takes: arguments("session_id request_id", "session_id", "request_id", "question_neutral", "question_translated",
		"translate_chat boolean", "identity_id: links the session", "pipeline_name", "consultant", "repository",
		"metadata object", "question_messages array: chat messages in the OpenAI form", "answer_neutral",
		"answer_translated", "answer_translated_is_fallback boolean", "answer_messages array"),
	records: "turns", shows: turnMembers,
	read: func(answer json.RawMessage) page {
		return page{records: []record{saidMore(recordOf(answer, turnMembers))}}
	},
}

// arguments describes the members of a call, as "name type: what it is"; a string where no type is named.
func arguments(required string, lines ...string) *jsonschema.Schema {
	out := &jsonschema.Schema{
		Type: "object", Required: strings.Fields(required), Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, line := range lines {
		named, about, _ := strings.Cut(line, ": ")
		name, kind, typed := strings.Cut(named, " ")
		if !typed {
			kind = "string"
		}
		s := &jsonschema.Schema{Type: kind, Description: about}
		if kind == "array" {
			s.Items = &jsonschema.Schema{}
		}
		if name == "cursor" {
			s.Description = "next_cursor of the result before, with the same arguments"
		}
		if slices.Contains(out.Required, name) && kind == "string" {
			one := 1
			s.MinLength = &one
		}
		out.Properties[name] = s
	}
	return out
}

// list reads an answer that lists records.
func (t *tool) list(answer json.RawMessage) page {
	out := page{head: recordOf(answer, t.head)}
	var body struct {
		Next string `json:"next_cursor"`
	}
	_ = json.Unmarshal(answer, &body) // null stays empty
	out.next = body.Next
	for _, raw := range listIn(answer, t.records) {
		out.records = append(out.records, saidMore(recordOf(raw, t.shows)))
	}
	return out
}

func listIn(answer json.RawMessage, path ...string) (list []json.RawMessage) {
	_ = json.Unmarshal(find(answer, path), &list) // what is missing is empty
	return list
}

func readContext(answer json.RawMessage) page {
	out := page{head: recordOf(answer, contextMembers)}
	if r := recordOf(answer, membersOf("system text")); len(r.texts) > 0 { // of the form of Anthropic
		out.records = append(out.records, record{
			[]value{{[]string{"role"}, `"system"`}}, []value{{[]string{"content"}, r.texts[0].says}},
		})
	}
	for _, raw := range listIn(answer, "messages") {
		out.records = append(out.records, spoken(raw))
	}
	return out
}

// readExplanation shows the events of the turn, the turns before it, and its prompt, in this order.
func readExplanation(answer json.RawMessage) page {
	out := page{head: recordOf(answer, membersOf("session_id", "turn_id", "inherited boolean", "as_of"))}
	prompt := recordOf(find(answer, []string{"context"}), contextMembers[1:4])
	out.head.plain = append(out.head.plain, prompt.plain...)
	for _, raw := range listIn(answer, "events") {
		r := recordOf(raw, membersOf("type", "position", "recordedat", "id", "redacted boolean", "problem",
			"usage object"))
		r.plain[0].path = []string{"event"}
		out.records = append(out.records, r)
	}
	for _, raw := range listIn(answer, "turns") {
		out.records = append(out.records, recordOf(raw, seenMembers))
	}
	for _, raw := range listIn(answer, "context", "messages") {
		out.records = append(out.records, spoken(raw))
	}
	return out
}

// describe returns the tool as the protocol lists it.
func (t *tool) describe() *sdk.Tool {
	no := false
	return &sdk.Tool{
		Name: t.name, Title: t.title, Description: t.about, InputSchema: t.takes,
		OutputSchema: schemaOf(t.head, map[string]*jsonschema.Schema{
			t.records:     {Type: "array", Items: schemaOf(t.shows, nil)},
			"next_cursor": {Type: "string", Description: "Pass it on as cursor for what did not fit, or comes next"},
			"part": {
				Type: "object", Description: "Of one long record: which bytes of its texts are shown",
				Properties: map[string]*jsonschema.Schema{
					"from": {Type: "integer"}, "to": {Type: "integer"}, "of": {Type: "integer"},
				},
			},
		}),
		Annotations: &sdk.ToolAnnotations{
			Title: t.title, ReadOnlyHint: !t.writes, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no,
		},
	}
}

// mostTurns bounds a page of turns: what did not fit is read again with the next result.
const mostTurns = 100

// call calls the API, and shows as much of the answer as fits.
func (t *tool) call(ctx context.Context, cfg *Config, members map[string]json.RawMessage) (result, error) {
	c := cfg.Client
	at, err := parseCursor(plainText(members["cursor"]))
	if err != nil {
		return result{}, err
	}
	delete(members, "cursor")
	if at.Page != "" {
		members["cursor"], _ = json.Marshal(at.Page)
	}
	newestLast := t.records == "turns"
	if newestLast && !t.writes {
		boundTurns(members)
	}
	answer, err := c.Call(ctx, t.method, t.path, members)
	if errors.Is(err, client.ErrAnswerTooLarge) && newestLast {
		members["limit"] = json.RawMessage("1")
		answer, err = c.Call(ctx, t.method, t.path, members)
	}
	if err != nil {
		return result{}, err
	}
	read := t.list
	if t.read != nil {
		read = t.read
	}
	p := read(answer)
	if newestLast {
		slices.Reverse(p.records)
	}
	out, err := p.cut(at, cfg.Count)
	if newestLast {
		slices.Reverse(out.shown)
	}
	return out, err
}

func boundTurns(members map[string]json.RawMessage) {
	var n int
	if json.Unmarshal(members["limit"], &n) == nil && n > mostTurns {
		members["limit"], _ = json.Marshal(mostTurns)
	}
}

func plainText(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // the schema says that it is a string
	return s
}

// structured returns a result as structured content.
func (t *tool) structured(r result) map[string]any {
	out := r.head.object()
	list := []any{}
	for _, one := range r.shown {
		list = append(list, one.object())
	}
	out[t.records] = list
	if r.of > 0 {
		out["part"] = map[string]int{"from": r.from, "to": r.to, "of": r.of}
	}
	if r.next != "" {
		out["next_cursor"] = r.next
	}
	return out
}
