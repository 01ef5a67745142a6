package v1_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// hidden stands in every request wherever a text may stand. No refusal and no log may repeat it.
const hidden = "HIDDENTEXT"

// hostile makes requests as nobody should send them: bytes for a connection.
type malformer struct{ *rand.Rand }

func pick[T any](h malformer, of ...T) T { return of[h.IntN(len(of))] }

func (h malformer) path() string {
	// ids are logged
	id := pick(h, "s", "s", "s", "t", "u", "..", ".", "", "%2e%2e", "%00", "%zz", "a%2Fb", strings.Repeat("i", 300),
		"%ff", "ü", "*", ">", "a.b", "s/../../metrics", "%0d%0aX-A:b", "id")
	return pick(h,
		"/v1/sessions/"+id+"/turns", "/v1/sessions/"+id, "/v1/sessions/"+id+"/history?limit="+pick(h, "-1", "1e9",
			hidden, "99999999999999999999", ""),
		"/v1/sessions/"+id+"/turns/"+pick(h, "x", id, events.TurnID("s", "r").String())+"/"+pick(h, "finalize",
			"redact", "correct", "x"), "/v1/sessions/"+id+"/context", "/v1/sessions/"+id+"/identity",
		"/v1/sessions/"+id+"/turns?cursor="+hidden, "/v1/sessions/"+id+"?min_position="+hidden, "/v1/events?from="+
			hidden, "/v1/threads/"+id+"/messages", "/v1/chat",
		"/v1/identities/"+id+"/turns?since="+hidden, "/v1/receipts/"+id, "/v1/deadletters/x/"+id, "/v1/projections/"+id+
			"/rebuild", "/"+id, "*", "http://evil.example/v1/sessions/s", "//"+id, "/v1/%", "/v1?a=%zz&b;c",
	)
}

// start of a turn, sometimes one that there is, or for another identity than the session's.
func (h malformer) start() string {
	return fmt.Sprintf(`{"request_id":"%d","question_neutral":"%s","identity_id":"u%d"}`, h.IntN(1000), hidden, h.IntN(3))
}

func (h malformer) body() string {
	deep := h.IntN(20_000)
	return pick(h,
		h.start(), "", "{", "null", "[]", `"`+hidden+`"`, `{"`+hidden+`":1}`, `{"request_id":{"a":"`+hidden+`"}}`,
		`{"request_id":"r","question_neutral":"`+hidden+`","metadata":"`+hidden+`"}`,
		strings.Repeat("[", deep)+strings.Repeat("]", deep), `{"request_id":"r","question_neutral":"q","question_messages":`+strings.Repeat("[", deep)+strings.Repeat("]", deep)+`}`,
		`{"a":`+strings.Repeat(`{"a":`, deep)+"1"+strings.Repeat("}", deep+1), "\xff\xfe{\"request_id\":\"r\"}", `{"request_id":"\ud800","question_neutral":"`+hidden+`"}`, `{"request_id":"a\u0000b","question_neutral":"`+hidden+`"}`,
		`{"message":"`+hidden+`","max_messages":1e400}`, `{"message":"`+hidden+`","max_messages":-5}`,
		`{"message":"m","idle_timeout":"`+hidden+`"}`, `{"message":"m","as_of":{"position":"`+hidden+`"}}`,
		`{"message":"m","conversation_history":[{"role":"`+hidden+`","content":{"a":[]}},1,null,[[]]]}`, `{"identity_id":"`+strings.Repeat("i", 300)+`"}`, `{"request_id":"r","request_id":"`+hidden+`","question_neutral":""}`,
		`{"content":"","user_id":"`+hidden+`"}`, strings.Repeat(" ", 2<<20), `{"answer_neutral":"`+strings.Repeat("A",
			1<<20)+`"}`, string(h.noise(h.IntN(4000))),
	)
}

func (h malformer) noise(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(h.Uint32())
	}
	return out
}

// fair returns a request in good form from a caller with all scopes, so that the API itself finds what is wrong with
// it.
func (h malformer) fair() []byte {
	path, body := h.path(), h.body()
	if h.IntN(8) == 0 { // some are as they should be
		path, body = "/v1/sessions/s/turns", h.start()
	}
	if strings.ContainsAny(path, " *") || !strings.HasPrefix(path, "/") {
		path = "/v1/sessions/s/turns"
	}
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: "+
		"close\r\nContent-Length: %d\r\n\r\n%s",
		pick(h, "POST", "POST", "POST", "PUT", "GET", "DELETE"), path, hidden, len(body), body)
}

// request returns the bytes of one request, and whether they are in good form.
func (h malformer) request() (raw []byte, fair bool) {
	if h.IntN(2) == 0 {
		return h.fair(), true
	}
	return h.foul(), false
}

// foul returns a malformed request.
func (h malformer) foul() []byte {
	body, b := h.body(), &bytes.Buffer{}
	method := pick(h, "GET", "POST", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH",
		"BREW", "get", strings.Repeat("M", 100))
	fmt.Fprintf(b, "%s %s %s\r\n", method, h.path(), pick(h, "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0",
		"HTTP/9.9", "", "HTTQ/1.1"))
	host := pick(h, "localhost", "localhost", "localhost", "127.0.0.1", "evil.example", "", "a b", "localhost:1:2")
	fmt.Fprintf(b, "Host: %s\r\n", host)
	for range h.IntN(3) {
		b.WriteString(pick(h,
			"Content-Type: application/json\r\n", "Content-Type: multipart/form-data; boundary="+hidden+"\r\n",
			"Content-Encoding: gzip\r\n", "Expect: 100-continue\r\n", "Expect: "+hidden+"\r\n",
			"Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n", "Authorization: Bearer "+hidden+"\r\n",
			"Authorization: Basic \xff\r\n", "Idempotency-Key: "+strings.Repeat("k", 300)+"\r\n",
			"Idempotency-Key: \x01\r\n",
			"X-Thread-Id: ..\r\n", "Last-Event-ID: "+hidden+"\r\n", "Range: bytes=0-1,2-\r\n", "Host: other\r\n",
			" folded\r\n", "no colon\r\n", ": empty\r\n", "X-Big: "+strings.Repeat("b", h.IntN(200<<10))+"\r\n",
			"X-Big: "+strings.Repeat("b", 99<<10)+"\r\n", strings.Repeat("X-M: 1\r\n", 2000),
			"Upgrade: websocket\r\nConnection: Upgrade\r\n", "Connection: close\r\n", "traceparent: 00-"+hidden+"\r\n",
			"X-Forwarded-For: "+hidden+"\r\n", "Transfer-Encoding: gzip, chunked\r\n", "X-\x00: 1\r\n",
		))
	}
	switch h.IntN(8) {
	case 0:
		fmt.Fprintf(b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	case 1: // what a proxy and a server may read differently
		fmt.Fprintf(b, "Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/%s "+
			"HTTP/1.1\r\nHost: localhost\r\n\r\n", len(body), hidden)
	case 2:
		fmt.Fprintf(b, "Transfer-Encoding: chunked\r\n\r\n%s\r\n%s", pick(h, "zz", "-1", "FFFFFFFFFFFFFFFFF",
			"10000000"), body)
	case 3:
		fmt.Fprintf(b, "Content-Length: %s\r\n\r\n%s", pick(h, "-1", "99999999999999", "1, 2", "0x10", ""), body)
	case 4: // broken off
		fmt.Fprintf(b, "Content-Length: %d\r\n\r\n%s", len(body)+100, body)
	default:
		fmt.Fprintf(b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	raw := b.Bytes()
	switch h.IntN(12) {
	case 0:
		return h.noise(h.IntN(3000))
	case 1:
		return raw[:h.IntN(len(raw)+1)]
	case 2:
		return append([]byte(pick(h, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
			"\r\n\r\n\r\n")), raw...)
	default:
		return raw
	}
}

// send returns the statuses that came back, and all bytes.
func send(address string, raw []byte, fair bool) (statuses []int, all []byte, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(hang.Limit))
	go func() {
		_, _ = c.Write(raw) // it may be let go before
		if !fair {          // nothing more comes; net/http takes it for the client's end
			_ = c.(*net.TCPConn).CloseWrite()
		}
	}()
	all, _ = io.ReadAll(c) // a reset is an answer, too
	r := bufio.NewReader(bytes.NewReader(all))
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses, all, nil
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		statuses = append(statuses, resp.StatusCode)
	}
}

// own5xx are answers that are no fault of ours: net/http's to a transfer coding or a
// version that it does not know, and those of ports that this API lacks.
var own5xx = map[int]bool{http.StatusNotImplemented: true, http.StatusHTTPVersionNotSupported: true,
	http.StatusServiceUnavailable: true, http.StatusBadGateway: true}

// TestMalformedRequestsLeaveTheServerWell: the server answers others meanwhile, its memory stays where it
// was, nothing is recorded but what a 201 says, and no refusal repeats what was sent. The
// seed is in the failure; TURNLEDGER_TORTURE sends 10,000.
func TestMalformedRequestsLeaveTheServerWell(t *testing.T) { // alone: it looks at the memory
	const seed = 6
	total := 300
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		total = 10_000
	}
	s, _ := guarded(t, ring{hidden: {Name: "hostile", Scopes: scopes}})
	address := s.served(wire.ServerConfig{HeaderTimeout: time.Second, ReadTimeout: 2 * time.Second,
		IdleTimeout: time.Second})
	s.url = "http://" + address
	before := heap()
	h := malformer{rand.New(rand.NewPCG(seed, seed))}
	written, kinds := uint64(0), map[int]int{}
	for n := range total {
		raw, fair := h.request()
		head := s.head()
		statuses, all, err := send(address, raw, fair)
		what := fmt.Sprintf("seed %d, request %d: %.300q", seed, n, raw)
		require.NoError(t, err, what)
		for _, status := range statuses {
			kinds[status]++
			require.True(t, status < 500 || own5xx[status], "%d to %s: %.500s", status, what, all)
			if status >= 400 {
				require.NotContains(t, string(all), hidden, what)
			}
		}
		now := s.head()
		if now != head {
			require.Condition(t, func() bool {
				for _, status := range statuses {
					// 503 says that nobody knows, to a client that has left.
					if status < 300 || status == http.StatusConflict || !fair &&
						status == http.StatusServiceUnavailable {
						return true
					}
				}
				return false
			}, "recorded without being told: %s", what)
			written += now - head
		}
		if n%100 == 0 {
			s.ok(http.StatusOK, "GET", "/v1/sessions/probe", nil, "Authorization", "Bearer all")
		}
	}
	t.Log(kinds, written)
	require.Positive(t, written)
	for _, status := range []int{201, 400, 401, 404, 405, 413, 422, 431} {
		require.Positive(t, kinds[status], "the generator makes none of %d any more", status)
	}
	require.Equal(t, written, s.head())
	must.Lack(t, s.logs.String(), hidden, "panic")
	require.Less(t, int64(heap())-int64(before), int64(64<<20), "memory that is kept")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

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
	"POST /v1/tokens":         {"identity_id", "expires_in", "scopes"},
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
			gathered := must.Get(s.metrics.Gather())(t)
			require.NotContains(t, fmt.Sprint(gathered), marker)
			require.Greater(t, tried, 2000)
		})
	}
}

// realQueries and realBodies are what real requests carry.
var (
	realQueries = map[string]string{
		"GET /v1/sessions/{session_id}":          "?min_position=0:1",
		"GET /v1/sessions/{session_id}/turns":    "?limit=2&status=all&min_position=0:1",
		"GET /v1/sessions/{session_id}/history":  "?limit=20",
		"GET /v1/identities/{identity_id}/turns": "?since=2026-01-02T03:04:05Z&until=2027-01-02T03:04:05Z&limit=5",
		"GET /v1/events": "?session_id=s&type=turnledger.turn.started.v1&from=0:1&to=0:9" +
			"&since=2026-01-02T03:04:05Z",
		"GET /v1/whatif":                     "?sessions=s,t&max_messages=4",
		"POST /v1/projections/{name}/verify": "?sample=3",
		"GET /v1/streams":                    "?replicas=1",
		"POST /v1/streams":                   "?replicas=1",
		"POST /v1/retention":                 "?dry_run=true",
		"GET /v1/receipts":                   "?limit=5&cursor=0:9",
	}
	realBodies = map[string]string{
		"POST /v1/sessions/{session_id}/turns": `{"request_id":"r","question_neutral":"Who is it?","question_translated":"Wer ist es?","translate_chat":true,"identity_id":"ada","pipeline_name":"p","consultant":"c","repository":"x","metadata":{"channel":"web","locale":"de"},` +
			`"question_messages":[{"role":"user","content":[{"type":"text","text":"Who is it?"},{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}]}]}`,
		"POST /v1/turns": `{"session_id":"s","request_id":"w1","question_neutral":"Who?","answer_neutral":"Nobody."}` + "\n" +
			`{"session_id":"t","request_id":"w2","question_neutral":"Where?","identity_id":"ada"}`,
		"POST /v1/sessions/{session_id}/turns/{turn_id}/finalize": `{"request_id":"r","answer_neutral":"Nobody.","answer_translated":"Niemand.","metadata":{"channel":"web"},` +
			`"answer_messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"find","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"none"},{"role":"assistant","content":"Nobody."}]}`,
		"POST /v1/sessions/{session_id}/turns/{turn_id}/correct": `{"request_id":"r2","question_neutral":"Who was it?","answer_neutral":"Somebody."}`,
		"POST /v1/sessions/{session_id}/turns/{turn_id}/redact":  `{"reason":"asked","redacted_by":"ada"}`,
		"POST /v1/sessions/{session_id}/summaries":               `{"request_id":"m","through_turn_id":"066d3201-f058-5aa0-8105-935d3d2f85fc","summary_neutral":"x"}`,
		"POST /v1/sessions/{session_id}/reset":                   `{"reason":"anew"}`,
		"POST /v1/sessions/{session_id}/fork":                    `{"request_id":"f","session_id":"branch"}`,
		"POST /v1/sessions/query":                                `{"title":"butler","metadata":{"folder":"crime"},"limit":3,"since":"2026-01-01T00:00:00Z"}`,
		"POST /v1/search":                                        `{"query":"q"}`,
		"POST /v1/tokens":                                        `{"identity_id":"ada","expires_in":60,"scopes":["context:read"]}`,
		"POST /v1/similar":                                       `{"question":"q"}`,
		"PATCH /v1/sessions/{session_id}":                        `{"request_id":"d","title":"Butler","metadata":{"folder":"crime","old":null},"kind":"conversation"}`,
		"PUT /v1/sessions/{session_id}/identity":                 `{"identity_id":"ada"}`,
		"DELETE /v1/sessions/{session_id}":                       `{"reason":"asked","redacted_by":"ada"}`,
		"DELETE /v1/identities/{identity_id}":                    `{"reason":"asked"}`,
		"POST /v1/sessions/{session_id}/context": `{"message":"And then?","system_prompt":"Be brief.","max_messages":10,"max_tokens":2000,"idle_timeout":"30m","language":"translated","include_pending":true,"format":"anthropic","as_of":{"position":"0:1"},` +
			`"conversation_history":[{"role":"user","content":"Hello"},{"role":"assistant","content":"Hello."}]}`,
		"POST /v1/threads/{thread_id}/messages":             `{"content":"Hello","user_id":"ada","request_id":"m1"}`,
		"POST /v1/threads/{thread_id}/messages/stream":      `{"content":"Hello","user_id":"ada"}`,
		"POST /v1/whatif":                                   `{"sessions":["s"],"max_messages":4}`,
		"POST /v1/threads/{thread_id}/stop":                 `{"turn_id":"066d3201-f058-5aa0-8105-935d3d2f85fc"}`,
		"POST /v1/chat":                                     `{"thread_id":"new","content":"Hello","max_messages":10}`,
		"POST /v1/ui/chat":                                  `{"id":"s","messages":[{"id":"m9","role":"user","parts":[{"type":"text","text":"Hello"}]}],"trigger":"submit-message"}`,
		"POST /v1/deadletters/{projection}/{position}/drop": `{"reason":"no turn of ours","dropped_by":"ada"}`,
		"POST /v1/chat/stream":                              `{"thread_id":"t","content":"Hello"}`,
	}
)

// realRequest is a request of a call, as a client sends it.
func realRequest(pattern string) []byte {
	method, path := fill(pattern, "s")
	return fmt.Appendf(nil, "%s %s%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, realQueries[pattern], len(realBodies[pattern]), realBodies[pattern])
}

// ask answers the bytes of a request by somebody who may do everything; false where
// net/http would not take them.
func (s *stack) ask(ctx context.Context, raw []byte) (*httptest.ResponseRecorder, bool) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // events may be followed for ever
	defer cancel()
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	r.Header.Del("Accept")
	r.Header.Set("Authorization", "Bearer all")
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r.WithContext(ctx))
	return w, true
}

// FuzzRequest holds any request that net/http takes against every call of the API: no
// panic, no 500, and no refusal that repeats the body. It begins with a real request of each
// call and with hostile ones.
func FuzzRequest(f *testing.F) {
	s, _ := guarded(f, ring{})
	for _, pattern := range slices.Sorted(maps.Keys(routes(s.api))) {
		w, ok := s.ask(f.Context(), realRequest(pattern))
		require.True(f, ok, pattern)
		require.NotContains(f, []int{http.StatusBadRequest, http.StatusMethodNotAllowed,
			http.StatusUnprocessableEntity}, w.Code, "%s is no real request: %s", pattern, w.Body)
		f.Add(realRequest(pattern))
	}
	h := malformer{rand.New(rand.NewPCG(1, 2))}
	for range 200 {
		if raw, _ := h.request(); len(raw) < 8<<10 {
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		w, ok := s.ask(t.Context(), raw)
		if !ok {
			return
		}
		if w.Code == http.StatusInternalServerError {
			t.Fatalf("500: %s\n%s", w.Body, s.logs)
		}
		if w.Code >= 400 && strings.Contains(w.Body.String(), hidden) {
			t.Fatalf("it repeats what was sent: %s", w.Body)
		}
	})
}
