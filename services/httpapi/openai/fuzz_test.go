package openai_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/services/answer"
)

// hidden stands where hostile requests hold what no answer may repeat.
const hidden = "fuzzed-secret"

// realBodies are what real requests carry, by call.
var realBodies = map[string]string{
	"POST /v1/conversations":                   `{"metadata":{"k":"v"},"items":[` + user("q") + `]}`,
	"POST /v1/conversations/{conversation_id}": `{"metadata":{"k":null}}`,
	"POST /v1/conversations/{conversation_id}/items": `{"items":[{"role":"user","content":[{"type":"input_text",
		"text":"q"},{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo=","detail":"low"}]},
		{"type":"reasoning","summary":[],"encrypted_content":"x"},` + function("c") + `,
		{"type":"function_call_output","call_id":"c","output":"o"},` + assistant("a") + `]}`,
	"POST /v1/responses": `{"model":"echo","input":[{"role":"user","content":"q"}],"instructions":"be brief",
		"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}},"strict":false}],
		"tool_choice":"auto","temperature":0.5,"metadata":{"k":"v"},"include":["reasoning.encrypted_content"],
		"text":{"format":{"type":"json_schema","name":"n","schema":{}}},"stream":true,"truncation":"auto"}`,
	"POST /v1/chat/completions": `{"model":"echo","messages":[{"role":"system","content":"s"},
		{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto",
		"temperature":0.5,"metadata":{"session_id":"s"},"stream":false,"n":1,"max_tokens":9}`,
	"POST /v1/responses/input_tokens": `{"model":"echo","input":"q","store":false}`,
}

// realQueries are those of real requests, by call.
var realQueries = map[string]string{
	"GET /v1/conversations/{conversation_id}/items":  "?limit=3&order=asc&include[]=message.input_image.image_url",
	"GET /v1/responses/{response_id}/input_items":    "?limit=3&order=desc",
	"POST /v1/conversations/{conversation_id}/items": "?include[]=reasoning.encrypted_content",
}

// hostile are values that stand where others are expected.
var hostile = []string{
	`null`, `[]`, `{}`, `7`, `-0`, `1e400`, `true`, `""`, `"` + hidden + `"`, `"\ud800"`, `"\u0000"`, `[[[[[[]]]]]]`,
	`{"` + hidden + `":1}`, `[{"type":"` + hidden + `"}]`, `[{"role":"` + hidden + `","content":"x"}]`,
	`[{"type":"item_reference","id":"` + hidden + `"}]`, `{"type":"` + hidden + `"}`, `["` + hidden + `"]`,
}

// mutated returns bodies in which one member has a hostile value.
func mutated(body string) (out []string) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal([]byte(body), &members) // each body of realBodies is an object
	for _, name := range slices.Sorted(maps.Keys(members)) {
		for _, value := range hostile {
			if strings.Contains(value, "1e400") || strings.Contains(value, `\ud800`) {
				continue // neither can be encoded anew
			}
			with := maps.Clone(members)
			with[name] = json.RawMessage(value)
			raw, _ := json.Marshal(with) // each value is JSON
			out = append(out, string(raw))
		}
	}
	return append(out, `{`, `[]`, `"`+hidden+`"`, "\x00", strings.Repeat("[", 9000))
}

// request returns the bytes of a request.
func request(method, path, body string) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", method, path, len(body), body)
}

// ask answers the bytes of a request; false where net/http would not take them.
func (s *stack) ask(raw []byte) (*httptest.ResponseRecorder, bool) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, false
	}
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	return w, true
}

// deletes is 1 for a call that deletes.
func deletes(pattern string) int {
	if strings.HasPrefix(pattern, "DELETE") {
		return 1
	}
	return 0
}

// FuzzRequest holds any request that net/http takes against every call of the surface: no panic, no 500, no answer that
// is not JSON or a stream, and no refusal that repeats what was sent. It begins with a real request of each call, and
// with hostile ones.
//
//conformance:o24 o80
func FuzzRequest(f *testing.F) {
	s := start(f, answeredBy(answer.Echo{}))
	id := s.begin(user("q"), assistant("a"))
	response := s.must("POST", "/v1/responses", `{"input":"q"}`)["id"].(string)
	fill := strings.NewReplacer("{conversation_id}", id, "{response_id}", response, "{model}", "echo",
		"{item_id}", ids(s.list(id, 10))[0])
	calls := routesOf(s.without())
	patterns := slices.Sorted(maps.Keys(calls))
	slices.SortStableFunc(patterns, func(a, b string) int { return deletes(a) - deletes(b) })
	for _, pattern := range patterns {
		method, path, _ := strings.Cut(pattern, " ")
		path = fill.Replace(path) + realQueries[pattern]
		f.Add(request(method, path, realBodies[pattern]))
		for _, body := range mutated(realBodies[pattern]) {
			f.Add(request(method, path, body))
		}
		if method == http.MethodDelete || strings.HasSuffix(path, "/cancel") || strings.HasSuffix(path, "/compact") ||
			pattern == "GET /v1/conversations" { // without tables
			continue
		}
		w, ok := s.ask(request(method, path, realBodies[pattern]))
		require.True(f, ok, pattern)
		require.Equal(f, http.StatusOK, w.Code, "%s is no real request: %s", pattern, w.Body)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		w, ok := s.ask(raw)
		if !ok {
			return
		}
		kind := w.Header().Get("Content-Type")
		switch {
		case w.Code == http.StatusInternalServerError:
			t.Fatalf("500: %s\n%s", w.Body, s.logs)
		case w.Code >= 400 && strings.Contains(w.Body.String(), hidden):
			t.Fatalf("it repeats what was sent: %s", w.Body)
		case strings.HasPrefix(kind, "application/json") && !json.Valid(w.Body.Bytes()):
			t.Fatalf("no JSON: %s", w.Body)
		}
	})
}

// A body of 5 MiB with images goes in and comes back: each text and each address of an image as it was, and each image
// that was sent as data as a part without it beside a text that says so. The log holds none of that data.
//
//conformance:o21 o70 o80
func TestABodyWithImages(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	random := rand.New(rand.NewPCG(1, 1))
	var list []string
	var sent []any
	size := 0
	for n := 0; size < 5<<20; n++ {
		data := make([]byte, 300<<10)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		image := "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)
		address := fmt.Sprintf("https://example.org/%d.png", n)
		raw, err := json.Marshal(map[string]any{"type": "message", "role": "user", "content": []any{
			map[string]any{"type": "input_text", "text": fmt.Sprint("picture ", n)},
			map[string]any{"type": "input_image", "image_url": image, "detail": "high"},
			map[string]any{"type": "input_image", "image_url": address, "detail": "auto"},
		}})
		require.NoError(t, err)
		list, size = append(list, string(raw)), size+len(raw)
		sent = append(sent, []any{
			map[string]any{"type": "input_text", "text": fmt.Sprint("picture ", n)},
			map[string]any{"type": "input_image", "image_url": nil, "detail": "high"},
			map[string]any{"type": "input_text", "text": "[Image sent: photo]"},
			map[string]any{"type": "input_image", "image_url": address, "detail": "auto"},
		})
	}
	include := "include[]=message.input_image.image_url"
	id := s.begin()
	posted := s.must("POST", "/v1/conversations/"+id+"/items?"+include, `{"items":[`+strings.Join(list, ",")+`]}`)
	listed := s.must("GET", "/v1/conversations/"+id+"/items?order=asc&limit=100&"+include, "")
	require.Equal(t, posted["data"], listed["data"])
	var got []any
	for _, i := range listed["data"].([]any) {
		got = append(got, i.(map[string]any)["content"])
	}
	require.Equal(t, sent, got)

	body := `{"input":[` + strings.Join(list, ",") + `],"conversation":"` + id + `"}`
	require.Equal(t, "completed", s.must("POST", "/v1/responses", body)["status"])
	answered := s.must("GET", "/v1/conversations/"+id+"/items?order=desc&limit=1", "")
	require.Contains(t, texts(answered["data"].([]any))[0], fmt.Sprintf("picture %d", len(list)-1))
	a := s.do("POST", "/v1/responses", strings.Replace(body, "}", strings.Repeat(" ", 17<<20)+"}", 1),
		openaitest.Unofficial, "1")
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status)

	bytes := 0
	for e, err := range s.log.Session(t.Context(), id, 0, 1<<40) {
		require.NoError(t, err)
		bytes += len(e.Body)
	}
	require.Less(t, bytes, 100<<10, "the log keeps no data of images")
}
