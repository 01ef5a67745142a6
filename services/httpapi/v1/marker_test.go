package v1_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// marker stands for a text of a user. It is no id: ids may be logged.
const marker = "The-Marker-7f3a"

// fields of all bodies, with a value that fits.
var fields = map[string]string{
	"request_id": `"new"`, "question_neutral": `"q"`, "question_translated": `"q"`, "translate_chat": `true`,
	"identity_id":   `"ada"`,
	"pipeline_name": `"p"`, "consultant": `"c"`, "repository": `"r"`, "metadata": `{}`, "question_messages": `[]`,
	"answer_neutral": `"a"`, "answer_translated": `"a"`, "answer_translated_is_fallback": `true`,
	"answer_messages": `[]`,
	"session_id":      `"s"`,
	"reason":          `"x"`,
	"redacted_by":     `"x"`, "message": `"m"`, "turn_id": `"` + events.TurnID("s", "final").String() + `"`,
	"system_prompt": `"p"`, "max_messages": `2`, "max_tokens": `9`, "idle_timeout": `"1h"`, "language": `"neutral"`,
	"include_pending": `true`, "memory": `true`, "rewrite": `true`, "conversation_history": `[]`, "format": `"openai"`,
	"as_of": `{"position":"0:1"}`,
	"title": `"t"`, "since": `"2026-01-02T03:04:05Z"`, "until": `"2026-01-02T03:04:05Z"`, "limit": `1`, "cursor": `"c"`,
	"query": `"q"`, "mode": `"words"`, "in": `"both"`, "min_score": `0.5`, "before_turn_id": `null`,
	"through_turn_id": `"` + events.TurnID("s", "final").String() + `"`, "summary_neutral": `"s"`,
	"summary_translated": `"s"`, "model": `"m"`,
}

// calls are all with a body, and the members that each knows.
var calls = map[string][]string{
	"POST " + onS + "/turns": {"request_id", "question_neutral", "question_translated", "translate_chat", "identity_id",
		"pipeline_name", "consultant", "repository", "metadata", "question_messages",
		"answer_neutral", "answer_translated", "answer_translated_is_fallback", "answer_messages"},
	"POST /v1/turns": {"session_id", "request_id", "question_neutral", "question_translated", "identity_id", "metadata",
		"question_messages", "answer_neutral", "answer_messages"},
	"POST " + open + "/finalize": {"request_id", "answer_neutral", "answer_translated", "answer_translated_is_fallback",
		"metadata", "answer_messages", "question_neutral"},
	"PUT " + onS + "/identity":  {"identity_id"},
	"POST " + final + "/redact": {"reason", "redacted_by"},
	"POST " + final + "/correct": {"request_id", "question_neutral", "question_translated", "answer_neutral",
		"answer_translated"},
	"POST " + onS + "/reset":     {"reason"},
	"POST " + onS + "/summaries": {"request_id", "through_turn_id", "summary_neutral", "summary_translated", "model"},
	"POST " + onS + "/context": {"message", "turn_id", "system_prompt", "max_messages", "max_tokens", "idle_timeout",
		"language", "include_pending", "memory", "rewrite", "identity_id", "conversation_history", "format", "as_of"},
	"PATCH " + onS:            {"request_id", "title", "metadata"},
	"POST " + onS + "/fork":   {"request_id", "turn_id", "before_turn_id", "session_id"},
	"POST /v1/sessions/query": {"identity_id", "since", "until", "title", "metadata", "limit", "cursor"},
	"POST /v1/search": {"query", "mode", "in", "identity_id", "session_id", "since", "until", "language", "limit",
		"min_score", "cursor"},
	"POST /v1/similar":            {"question", "identity_id", "limit", "min_score"},
	"POST " + gone + "/finalize":  {"answer_neutral"},
	"POST " + none + "/finalize":  {"answer_neutral"},
	"POST " + gone + "/correct":   {"request_id", "answer_neutral"},
	"PUT /v1/sessions/l/identity": {"identity_id"},
}

// places are values of every kind that hold the marker, fit or not.
var places = []string{
	`"%s"`, `["%s"]`, `{"%s":1}`, `{"a":"%s"}`, `[{"role":"%s"}]`, `[{"role":"user","content":"%s"}]`,
	`[{"content":"%s"}]`,
	`{"position":"%s"}`, `{"time":"%s"}`, `"%s\u0000"`, `"` + strings.Repeat("%[1]s", 30) + `"`,
}

// bodies returns a body for each place that the marker can take among a call's members.
func bodies(known []string) []string {
	var out []string
	for _, at := range known {
		for _, place := range places {
			var members []string
			for _, name := range known {
				value := fields[name]
				if name == at {
					value = fmt.Sprintf(place, marker)
				}
				members = append(members, `"`+name+`":`+value)
			}
			whole := "{" + strings.Join(members, ",") + "}"
			out = append(out, whole, strings.TrimSuffix(whole, "}"), whole+marker,
				strings.TrimSuffix(whole, "}")+`,"unknown":"`+marker+`"}`, strings.TrimSuffix(whole, "}")+`,"`+marker+
					`":1}`,
				strings.TrimSuffix(whole, "}")+`,"unknown":"`+"\xff"+`"}`)
		}
	}
	return append(out, marker, `"`+marker+`"`, `["`+marker+`"]`, `{"`+marker+`":1}`, strings.Repeat(marker, 1<<17))
}

// Nothing that a client sends in a body, a query, a header or a path comes back in
// an error, or stands in a log line or a metric. A valid session id may be logged.
//
//conformance:o81
func TestNoErrorLineOrMetricHoldsAText(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(*testing.T) *stack{
		"real": prepared,
		"log down": func(t *testing.T) *stack {
			return start(t, failingWith(fmt.Errorf("%w: nats: timeout", jetlog.ErrUnavailable)))
		},
		"internal": func(t *testing.T) *stack { return start(t, failingWith(fmt.Errorf("json: %s", marker))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := make(t)
			s.ok(http.StatusOK, "PUT", "/v1/sessions/l/identity", `{"identity_id":"ada"}`)
			tried := 0
			try := func(method, path, body string, header ...string) {
				tried++
				r := httptest.NewRequest(method, path, strings.NewReader(body))
				r.Host = "localhost"
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				w := httptest.NewRecorder()
				s.api.ServeHTTP(w, r)
				if w.Code >= 400 && strings.Contains(w.Body.String()+fmt.Sprint(w.Header()), marker) {
					t.Errorf("%s %s %s: %s", method, path, body, w.Body)
				}
			}
			for call, known := range calls {
				method, path, _ := strings.Cut(call, " ")
				for _, body := range bodies(known) {
					try(method, path, body)
				}
				try(method, path+"?"+marker+"="+marker, fmt.Sprintf(`{"%s":1}`, marker))
				try(method, path, `{}`, "Idempotency-Key", marker+"\x01")
				try(method, path, `{"request_id":"another"}`, "Idempotency-Key", marker)
				try(method, path, marker, "Content-Type", marker+"/"+marker, "Accept", marker, "X-"+marker, marker)
			}
			for _, path := range []string{onS, onS + "/turns", onS + "/history", "/v1/identities/ada/turns",
				"/v1/sessions", "/v1/stats", "/v1/projections", "/v1/" + marker, "/" + marker, "/v1//" + marker} {
				for _, name := range []string{"limit", "status", "cursor", "min_position", "since", "until",
					"identity_id", "bucket", "by", marker} {
					try("GET", path+"?"+name+"="+marker, "")
					try(marker, path+"?"+name+"="+marker, marker)
				}
			}
			bad := url.PathEscape(marker + "\x01")
			for _, path := range []string{"/v1/sessions/" + bad, "/v1/sessions/" + bad + "/turns", onS + "/turns/" +
				marker + "/redact", "/v1/identities/" + bad + "/turns"} {
				try("GET", path, "")
				try("POST", path, `{"request_id":"x","question_neutral":"q"}`)
			}
			try("POST", onS+"/turns", fresh+`}`, "Origin", "https://"+marker)
			require.NotContains(t, s.logs.String(), marker)
			gathered, err := s.metrics.Gather()
			require.NoError(t, err)
			require.NotContains(t, fmt.Sprint(gathered), marker)
			require.Greater(t, tried, 2000)
		})
	}
}
