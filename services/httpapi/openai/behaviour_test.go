package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/items"
)

// many returns n items.
func many(n int) string {
	return strings.TrimSuffix(strings.Repeat(user("x")+",", n), ",")
}

// What is refused, with the status, the code and the member that OpenAI's clients go by, and with nothing stored.
//
//conformance:o4 o11 o12 o13 o16 o17 o18 o23
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(`{"role":"user","content":"q","id":"msg_own"}`)
	conv, list := "/v1/conversations/"+id, "/v1/conversations/"+id+"/items"
	long := strings.Repeat("é", 65)
	for _, c := range []struct {
		method, path, body string
		status             int
		code, param        any
	}{
		{"POST", "/v1/conversations", `{`, 400, nil, nil},
		{"POST", "/v1/conversations", `[]`, 400, nil, nil},
		{"POST", "/v1/conversations", "{\"x\":\"\xff\"}", 400, nil, nil},
		{"POST", "/v1/conversations", `{"metadata":7}`, 400, "invalid_type", "metadata"},
		{"POST", "/v1/conversations", `{"metadata":{"a":7}}`, 400, "invalid_type", "metadata"},
		{"POST", "/v1/conversations", `{"metadata":{` + keys(17) + `}}`, 400, "object_above_max_properties",
			"metadata"},
		{"POST", "/v1/conversations", `{"metadata":{"` + long + `":"x"}}`, 400, "property_name_above_max_length",
			"metadata"},
		{"POST", "/v1/conversations", `{"metadata":{"a":"` + strings.Repeat("x", 513) + `"}}`, 400,
			"string_above_max_length", "metadata"},
		{"POST", "/v1/conversations", `{"items":7}`, 400, "invalid_type", "items"},
		{"POST", conv, `{}`, 400, "missing_required_parameter", "metadata"},
		{"POST", conv, `{"metadata":null}`, 400, "invalid_type", "metadata"},
		{"POST", list, `{}`, 400, "missing_required_parameter", "items"},
		{"POST", list, ``, 400, "missing_required_parameter", "items"},
		{"POST", list, `{"items":[]}`, 400, "empty_array", "items"},
		{"POST", list, `{"items":[` + many(501) + `]}`, 400, "array_above_max_length", "items"},
		{"POST", list, `{"items":[` + user("a") + `,{"role":"robot","content":"b"}]}`, 400, "invalid_value",
			"items[1].role"},
		{"POST", list, `{"items":[{"role":"user"}]}`, 400, "missing_required_parameter", "items[0].content"},
		{"POST", list, `{"items":[{}]}`, 400, "invalid_type", "items[0]"},
		{"POST", list, `{"items":[` + user("a") + `,{"type":"message","content":"x"}]}`, 400,
			"missing_required_parameter", "items[1].role"},
		{"POST", list, `{"items":[{"id":"msg_none"}]}`, 404, nil, "items[0].id"},
		{"POST", list, `{"items":[{"role":"user","content":"b","id":"msg_own"}]}`, 400, "item_already_in_conversation",
			"items"},
		{"POST", list, `{"items":[{"role":"robot"},{"type":"item_reference","id":"msg_none"}]}`, 404, nil,
			"items[1].id"},
		{"POST", list + "?include[]=all", `{"items":[` + user("a") + `]}`, 400, "invalid_value", "include"},
		{"GET", list + "?limit=0", "", 400, "integer_below_min_value", "limit"},
		{"GET", list + "?limit=101", "", 400, "integer_above_max_value", "limit"},
		{"GET", list + "?limit=x", "", 400, "invalid_type", "limit"},
		{"GET", list + "?order=up", "", 400, "invalid_value", "order"},
		{"GET", list + "?after=msg_none", "", 404, nil, "after"},
		{"GET", list + "?include=all", "", 400, "invalid_value", "include"},
		{"GET", list + "/msg_none", "", 404, nil, "item_id"},
		{"GET", "/v1/conversations/none", "", 404, nil, nil},
		{"GET", "/v1/conversations/none/items", "", 404, nil, nil},
		{"POST", "/v1/conversations/none", `{"metadata":{}}`, 404, nil, nil},
		{"POST", "/v1/conversations/none/items", `{"items":[` + user("a") + `]}`, 404, nil, nil},
		{"DELETE", "/v1/conversations/none", "", 404, nil, nil},
		{"GET", "/v1/conversations", "", 503, "audit_unavailable", nil},
		{"GET", "/v1/conversations/a/b/c/d", "", 404, "unknown_url", nil},
		{"PUT", "/v1/conversations", "", 405, "method_not_supported", nil},
	} {
		name := fmt.Sprintf("%s %s %.60s", c.method, c.path, c.body)
		a := s.do(c.method, c.path, c.body)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.raw)
		require.Len(t, a.body, 1, name)
		e := a.body["error"].(map[string]any)
		require.Equal(t, c.code, e["code"], name)
		require.Equal(t, c.param, e["param"], name)
		require.NotEmpty(t, e["message"], name)
		require.Len(t, e, 4, name)
		require.NotEmpty(t, a.header.Get("X-Request-Id"), name)
		require.Equal(t, fmt.Sprint(c.status == 503), a.header.Get("X-Should-Retry"), name)
	}
	require.Equal(t, []string{"q"}, texts(s.list(id, 100)), "nothing was stored")
}

// A body that can't be read is refused alike on every route that takes one, without a code and a member, as OpenAI's
// own server does it.
//
//conformance:o25
func TestBodiesThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	head := s.head()
	for _, path := range []string{"/v1/conversations", "/v1/conversations/" + id, "/v1/conversations/" + id + "/items",
		"/v1/responses", "/v1/responses/input_tokens"} {
		for _, body := range []string{`{`, `[]`, `"secret_value"`, `null`, `7`, `{} {}`, "{\"input\":\"\xff\"}"} {
			for _, try := range []string{"0", "1"} {
				a := s.do("POST", path, body, retry, try)
				require.Equal(t, http.StatusBadRequest, a.status, "%s %q: %s", path, body, a.raw)
				e := a.body["error"].(map[string]any)
				require.Equal(t, "invalid_request_error", e["type"])
				require.Equal(t, []any{nil, nil}, []any{e["code"], e["param"]}, "%s %q", path, body)
				require.NotContains(t, a.raw, "secret_value")
			}
		}
		a := s.do("POST", path, `{"x":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+`}`)
		require.Equal(t, "invalid_value", a.body["error"].(map[string]any)["code"], path)
	}
	require.Equal(t, head, s.head(), "nothing was stored")
}

func keys(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return strings.Join(out, ",")
}

// What OpenAI refuses and this surface takes, unless it is strict.
//
//conformance:o12
func TestStrict(t *testing.T) {
	t.Parallel()
	lax, strict := start(t), start(t, func(s *stack) { s.cfg.Strict = true })
	require.Len(t, lax.post(lax.begin(), many(21)), 21)
	require.Len(t, lax.post(lax.begin(), many(500)), 500)
	require.Len(t, strict.post(strict.begin(), many(20)), 20)
	a := strict.do("POST", "/v1/conversations/"+strict.begin()+"/items", `{"items":[`+many(21)+`]}`)
	require.Equal(t, http.StatusBadRequest, a.status, a.raw)
}

// Clients are newer than servers: what they send beside what is known does no harm.
//
//conformance:o2 o11 o26
func TestUnknownMembersAreTaken(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.must("POST", "/v1/conversations?x=1", `{"items":null,"metadata":null,"of_tomorrow":{}}`)["id"].(string)
	s.must("POST", "/v1/conversations", ``)
	s.must("POST", "/v1/conversations/"+id+"/items?y=2", `{"items":[`+user("a")+`],"of_tomorrow":1}`,
		"OpenAI-Beta", "x", "OpenAI-Organization", "o")
	s.must("POST", "/v1/conversations/"+id, `{"metadata":{"a":"1","b":"2"},"of_tomorrow":1}`)
	got := s.must("POST", "/v1/conversations/"+id, `{"metadata":{"a":null,"c":"3"}}`)
	require.Equal(t, map[string]any{"b": "2", "c": "3"}, got["metadata"])
}

// What metadata may hold is bounded after a change, too.
//
//conformance:o11
func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin()
	conv := "/v1/conversations/" + id
	s.must("POST", conv, `{"metadata":{`+keys(16)+`}}`)
	for body, code := range map[string]string{
		`{"metadata":{"more":"x"}}`: "object_above_max_properties", `{"metadata":{"":"x"}}`: "invalid_value",
		`{"metadata":{"a\u0000":"x"}}`: "invalid_value", `{"metadata":{"k1":"\u0000"}}`: "invalid_value",
	} {
		for _, path := range []string{conv, "/v1/conversations"} {
			if path != conv && code != "invalid_value" {
				continue
			}
			a := s.do("POST", path, body)
			require.Equal(t, http.StatusBadRequest, a.status, "%s %s: %s", path, body, a.raw)
			e := a.body["error"].(map[string]any)
			require.Equal(t, []any{code, "metadata"}, []any{e["code"], e["param"]}, body)
		}
	}
	require.Len(t, s.must("GET", conv, "")["metadata"], 16)
	require.Len(t, s.must("POST", conv, `{"metadata":{"k0":null,"more":"x"}}`)["metadata"], 16)
}

// An id of a client is kept where it may be; else the item has one of ours. References are what they name.
//
//conformance:o9 o17 o18
func TestIDsAndReferences(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin()
	got := s.post(id, `{"role":"user","content":"a","id":"msg_client"}`,
		`{"role":"user","content":"b","id":"fc_wrong"}`,
		`{"role":"user","content":"c","id":"msg_`+strings.Repeat("x", 90)+`"}`, user("d"))
	require.Equal(t, "msg_client", ids(got)[0])
	for _, own := range ids(got)[1:] {
		require.Len(t, own, len("msg_")+48)
		require.True(t, items.Minter{Key: s.cfg.Key}.Made(own, id))
	}
	require.Equal(t, ids(got), ids(s.list(id, 100)), "the same ids, whoever asks")

	again := s.post(id, `{"type":"item_reference","id":"msg_client"}`,
		`{"type":"item_reference","id":"`+ids(got)[3]+`"}`, `{"id":"msg_client"}`,
		`{"type":null,"id":"`+ids(got)[3]+`"}`)
	require.Equal(t, []string{"a", "d", "a", "d"}, texts(again), "a type may be left out")
	require.NotContains(t, ids(got), ids(again)[0], "an item of its own")
	other := s.post(s.begin(), `{"type":"item_reference","id":"`+ids(got)[3]+`"}`, `{"type":"compaction_trigger"}`)
	require.Equal(t, []string{"d"}, texts(other), "from another conversation")
	for _, none := range []string{"msg_" + strings.Repeat("0", 48), ids(got)[3][:51] + "x"} {
		a := s.do("POST", "/v1/conversations/"+id+"/items", `{"items":[{"type":"item_reference","id":"`+none+`"}]}`)
		require.Equal(t, http.StatusNotFound, a.status, a.raw)
	}
}

// Bodies may be large: images become words before the log sees them.
//
//conformance:o21 o70
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	image := `{"role":"user","content":[{"type":"input_text","text":"look"},` +
		`{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo` + strings.Repeat("A", 5<<20) + `"}]}`
	got := s.post(s.begin(), image)[0].(map[string]any)["content"].([]any)
	require.Len(t, got, 3)
	require.Equal(t, map[string]any{"type": "input_image", "image_url": nil, "detail": "auto"}, got[1])
	require.Equal(t, map[string]any{"type": "input_text", "text": "[Image sent: photo]"}, got[2])

	id := s.begin()
	texts := strings.TrimSuffix(strings.Repeat(user(strings.Repeat("x", 200<<10))+",", 10), ",")
	require.Len(t, s.post(id, texts), 10, "more than fits into one event")
	require.Len(t, s.list(id, 3), 10)
	a := s.do("POST", "/v1/conversations/"+id+"/items", `{"items":[`+user(strings.Repeat("x", 9<<20))+`]}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status, a.raw)
	a = s.do("POST", "/v1/conversations", `{"x":"`+strings.Repeat("x", 16<<20)+`"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status, a.raw)
	require.Len(t, s.list(id, 100), 10)
}

// Nothing that a client says is in what is logged, or in an error.
//
//conformance:o24
func TestTextsAreInNoLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	const secret = "Marzipanmond"
	id := s.begin(user(secret))
	s.post(id, assistant(secret), function(secret))
	list := "/v1/conversations/" + id + "/items"
	for _, call := range [][3]string{
		{"POST", list, `{"items":[{"role":"` + secret + `","content":"x"}]}`},
		{"POST", list, `{"items":"` + secret + `"}`},
		{"POST", list, secret},
		{"POST", list, `{"items":[{"type":"item_reference","id":"` + secret + `"}]}`},
		{"POST", "/v1/conversations", `{"metadata":{"` + strings.Repeat(secret, 9) + `":"x"}}`},
		{"GET", list + "?after=" + secret + "&include[]=" + secret, ""},
		{"GET", list + "?limit=" + secret, ""},
		{"GET", list + "/" + secret, ""},
		{"GET", "/v1/models/" + secret, ""},
	} {
		a := s.do(call[0], call[1], call[2])
		require.GreaterOrEqual(t, a.status, 400)
		require.NotContains(t, a.raw, secret, call)
	}
	require.NotContains(t, s.logs.String(), secret)
	require.Contains(t, s.logs.String(), id, "what is logged is seen here")
}
