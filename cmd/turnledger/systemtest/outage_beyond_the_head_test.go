package systemtest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// No position that a client names, in whatever parameter, header, member or id, makes the server acknowledge a write
// before its fsync. Every call names positions that the log does not hold yet. After each, a write is on the disk when
// it is acknowledged, and in the end the power is cut.
func TestReadsBeyondTheHeadLoseNoWrite(t *testing.T) {
	t.Parallel()
	b := serveBeyond(t)
	known := b.record(t, "first")
	b.ask(callsOf(b, known), func(call int) (out []string) {
		for n, beyond := range []uint64{1, 1000, 1 << 40, math.MaxUint64} {
			for k, form := range b.forms(known, beyond) {
				if stack.Long() || (call+k)%4 == n { // each call in every form, and each distance
					out = append(out, form)
				}
			}
		}
		return out
	})
	b.cut()
}

// beyondTheHead asks a process for positions that its log does not hold.
type beyondTheHead struct {
	*stack.Process
	t       *testing.T
	disk    *cutfs.FS
	written []string
	head    uint64
}

var beyondRoles = []string{"--roles", "api,context,recent,audit,eraser,chat"}

func beyondEnv(t *testing.T) []string {
	// The calls leave turns pending that nobody answers.
	return append(stack.NewModel(t).Env(), "TURNLEDGER_POSTGRES_URL="+pg.URL(t), "TURNLEDGER_ON_PENDING=reject")
}

// serveBeyond starts a process whose streams are on a disk that forgets what was not fsynced.
func serveBeyond(t *testing.T) *beyondTheHead {
	t.Helper()
	b := &beyondTheHead{t: t}
	b.Process = serveOn(t, func(dir string) (disk *cutfs.FS, err error) {
		b.disk, err = cutfs.Mount(dir, cutfs.Options{ReplacingRenameSyncsData: true}) // as ext4 does
		return b.disk, err
	})
	return b
}

// serveOn starts a process whose streams are on a disk. The store directory is not: on a file system that it does
// not know, the process would have the server sync each write by itself.
func serveOn(t *testing.T, mount func(dir string) (*cutfs.FS, error)) *stack.Process {
	t.Helper()
	dir := t.TempDir()
	streams := filepath.Join(dir, "nats", "jetstream")
	require.NoError(t, os.MkdirAll(streams, 0o700))
	disk := must.Get(mount(streams))(t)
	t.Cleanup(func() { require.NoError(t, disk.Unmount()) })
	p := stack.Start(t, beyondEnv(t), append([]string{"serve", "--data-dir", dir}, beyondRoles...)...)
	require.NotContains(t, p.Log.String(), "not safe here", "the durability gate is at work")
	return p
}

// ask makes every call in its forms. Reads are asked all at once, and change nothing: the next write has the next
// position. After any other call a write follows at once, or the call's own writes would hide a mark that is only a
// little too high.
func (b *beyondTheHead) ask(calls []asking, forms func(call int) []string) {
	b.write("before the reads.")
	var all errgroup.Group
	all.SetLimit(32)
	for n, c := range calls {
		if c.reads {
			b.send(&all, c, forms(n))
		}
	}
	require.NoError(b.t, all.Wait())
	before := b.head
	b.write("after the reads.")
	require.Equal(b.t, before+1, b.head, "a read has written")
	for n, c := range calls {
		if !c.reads {
			var each errgroup.Group
			each.SetLimit(1)
			b.send(&each, c, forms(n))
			require.NoError(b.t, each.Wait())
			b.write("after " + c.method + " " + c.path + " " + c.body)
		}
	}
}

// send makes a call in each form.
func (b *beyondTheHead) send(all *errgroup.Group, c asking, forms []string) {
	for _, form := range forms {
		if !c.text || strings.Contains(form, ":") {
			all.Go(func() error { return c.send(b.t.Context(), b.URL, form) })
		}
	}
}

// send makes a call. Where a position or an id of ours was asked for, the answer is that there is none, or none yet.
func (c asking) send(ctx context.Context, server, form string) error {
	ctx, cancel := context.WithTimeout(ctx, hang.Limit)
	defer cancel()
	path := strings.ReplaceAll(c.path, "{x}", url.PathEscape(form))
	body := strings.ReplaceAll(c.body, "{x}", form)
	if n, err := strconv.ParseUint(form, 10, 64); err == nil {
		body = strings.ReplaceAll(body, `"{n}"`, fmt.Sprint(n))
	}
	req, err := http.NewRequestWithContext(ctx, c.method, server+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", c.contentType)
	for _, name := range c.headers {
		req.Header.Set(name, form)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.method, path, err)
	}
	return c.judge(resp.StatusCode, path+" "+body, string(answer))
}

// judge returns an error for an answer that a call must not get.
func (c asking) judge(status int, asked, answer string) error {
	switch says := func(what string) bool { return strings.Contains(answer, what) }; {
	case slices.Contains([]int{400, 404, 405, 409, 410, 422}, status), status < 300 && !c.exact:
		return nil
	case status == http.StatusNoContent: // no answer runs that could be watched
		return nil
	case status != http.StatusServiceUnavailable:
	case says("position_not_reached"), says("does not hold the position"), // the latter in the console
		says("index_unavailable"), says("audit_unavailable"): // there is no index, and a restored log has no tables yet
		return nil
	}
	return fmt.Errorf("%s %s: %d %s", c.method, asked, status, answer)
}

// write records a start, which is on the disk when it is acknowledged.
func (b *beyondTheHead) write(text string) {
	b.t.Helper()
	text = fmt.Sprintf("%d: %s", len(b.written), strings.NewReplacer(`"`, "", "{", "", "}", "").Replace(text))
	out := b.Must(b.t, http.StatusCreated, http.MethodPost, "/v1/sessions/written/turns",
		map[string]any{"request_id": fmt.Sprint("r", len(b.written)), "question_neutral": text})
	require.True(b.t, bytes.Contains(b.logIn(b.disk.Synced()), []byte(text)), "acknowledged before its fsync: %q", text)
	must.Get(fmt.Sscanf(out["position"].(string), "0:%d", &b.head))(b.t)
	b.written = append(b.written, text)
}

// cut cuts the power, and draws twenty times which unsynced bytes survive. Each acknowledged text is there, and a
// server that is started on what is left reads it.
func (b *beyondTheHead) cut() {
	for seed := range int64(20) {
		left := b.disk.Cut(seed)
		log := b.logIn(left)
		for _, text := range b.written {
			require.True(b.t, bytes.Contains(log, []byte(text)), "%q is lost with seed %d", text, seed)
		}
		if seed == 0 || stack.Long() {
			b.comesBack(left)
		}
	}
}

// comesBack starts a process on what a cut has left.
func (b *beyondTheHead) comesBack(left *cutfs.Image) {
	p := serveOn(b.t, left.Mount)
	defer p.Kill(b.t)
	all := readEvents(b.t, p.URL, "session_id=written")
	for _, text := range b.written {
		require.Contains(b.t, all, text)
	}
}

// readEvents returns the lines of the events that a query selects.
func readEvents(t *testing.T, server, query string) string {
	t.Helper()
	resp := must.Get(http.Get(server + "/v1/events?" + query))(t)
	defer func() { _ = resp.Body.Close() }()
	return string(must.Get(io.ReadAll(resp.Body))(t))
}

// logIn returns the log's blocks of an image.
func (b *beyondTheHead) logIn(left *cutfs.Image) (blocks []byte) {
	b.t.Helper()
	for _, path := range left.Paths() {
		if strings.Contains(path, "/TURNS-0/msgs/") && strings.HasSuffix(path, ".blk") {
			block := must.Get(left.ReadFile(path))(b.t)
			blocks = append(blocks, block...)
		}
	}
	return blocks
}

// asking is a request with the places of a position or an id as {x}, or as "{n}" where a number is meant.
type asking struct {
	method, path, body, contentType string
	headers                         []string
	// reads: the call changes nothing. exact: the place is that of a position, or of an id that holds one, so that the
	// call can't succeed. text: the place takes any text, and is tried with positions alone.
	reads, exact, text bool
}

// holding is what a log holds of a session, a conversation and a response, and what names it.
type holding struct{ turn, conversation, response, item, position, receipt, erasure string }

// record records a turn of the session s, one that is redacted and a session that is erased, and a response in a
// conversation.
func (b *beyondTheHead) record(t *testing.T, name string) (out holding) {
	t.Helper()
	post := func(path string, body any) map[string]any {
		return b.Must(t, http.StatusOK, http.MethodPost, path, body)
	}
	out.turn = b.RecordTurn(t, "s", name, name+" question", name+" answer")
	gone := b.RecordTurn(t, "s", name+" gone", "a question", "an answer")
	out.position = post("/v1/sessions/s/turns/"+gone+"/redact", map[string]any{})["position"].(string)
	out.receipt = b.Get(t, "/v1/sessions/s")["position"].(string) // of the redaction
	b.RecordTurn(t, "erased "+name, "r", "a question", "an answer")
	out.erasure = b.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/sessions/erased%20"+name,
		map[string]any{})["receipt_id"].(string)
	receipts := "type=turnledger.erasure.receipt.v1&session_id=erased%20" + name
	hang.Until(t, func() bool { // of the log, the recent view and the audit tables
		return strings.Count(readEvents(t, b.URL, receipts), "\n") == 3
	}, "the eraser has work left")
	out.conversation = post("/v1/conversations", map[string]any{})["id"].(string)
	out.response = post("/v1/responses",
		map[string]any{"input": name, "conversation": out.conversation})["id"].(string)
	items := b.Get(t, "/v1/conversations/"+out.conversation+"/items")["data"].([]any)
	out.item = items[0].(map[string]any)["id"].(string)
	return out
}

// forms returns each form in which the API writes a position, or an id that holds one, so far beyond the head.
func (b *beyondTheHead) forms(known holding, beyond uint64) []string {
	seq := b.head + beyond
	if seq < beyond {
		seq = beyond
	}
	out := []string{fmt.Sprintf("0:%d", seq), fmt.Sprint(seq), fmt.Sprintf("0-%d-00", seq)}
	turn := strings.ReplaceAll(known.turn, "-", "")
	out = append(out, fmt.Sprintf("resp_00%012x%s02", min(seq, 1<<48-1), turn))
	for _, prefix := range []string{"msg_", "fc_", "rs_"} {
		session := sha256.Sum256([]byte(known.conversation))
		out = append(out, fmt.Sprintf("%s%x00%010x00000000000000000000", prefix, session[:8], min(seq, 1<<40-1)))
	}
	return out
}

// callsOf returns each call of the process that takes anything, once for each place that it takes.
func callsOf(b *beyondTheHead, known holding) []asking {
	calls := append(nativeCalls(b, known), openAICalls(known)...)
	for _, page := range []string{
		"log?from={x}", "log?before={x}", "log/live?after={x}", "sessions/s?at={x}", "sessions/s?before={x}",
		"sessions/s/live?after={x}", "sessions/s/turns/" + known.turn + "?at={x}", "sessions/s/turns/{x}",
		"sessions/s/explain?at={x}", "sessions/s/explain?n={x}", "sessions/s/events/{x}", "sessions/{x}",
		"receipts?id={x}", "receipts?cursor={x}", "deadletters?retried={x}", "stats?since={x}", "open?id={x}",
		"search?session_id={x}", "playground?edit={x}", "views?view=audit&generation={x}",
	} {
		calls = append(calls, asking{method: http.MethodGet, path: "/console/" + page, reads: true})
	}
	return append(calls, asking{method: http.MethodPost, path: "/console/deadletters/audit/{x}/retry"})
}

// exact are parameters and members whose value is a position or holds one.
var exact = []string{"from", "min_position", "Last-Event-ID", "id", "position"}

// nativeCalls reads the server's description of its API.
func nativeCalls(b *beyondTheHead, known holding) (calls []asking) {
	doc := described{b.Get(b.t, "/openapi.json")}
	fixed := strings.NewReplacer("{session_id}", "s", "{thread_id}", "s", "{turn_id}", known.turn, "{identity_id}", "i",
		"{projection}", "audit", "{name}", "audit", "{partition}", "0", "{position}", "0:1", "{id}", known.receipt)
	paths := doc.all["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		operations := paths[path].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			operation, method := operations[method].(map[string]any), strings.ToUpper(method)
			reads := method == http.MethodGet || slices.Contains(readsWithABody, path)
			body, contentType, bodies := doc.bodies(operation, known)
			c := asking{method: method, path: path, body: body, contentType: contentType, reads: reads}
			of := path
			if method == http.MethodDelete {
				of = strings.Replace(path, "{session_id}", "nobody", 1)
			}
			parameters, _ := operation["parameters"].([]any)
			for _, p := range parameters {
				if p := p.(map[string]any); p["name"] != "ticket" { // any but ours is 401
					calls = append(calls, c.with(p, fixed))
				}
			}
			for _, member := range slices.Sorted(maps.Keys(bodies)) {
				one := c
				one.path, one.body, one.exact = fixed.Replace(of), bodies[member], slices.Contains(exact, member)
				one.text = !one.exact
				calls = append(calls, one)
			}
			if method == http.MethodGet {
				c.path, c.headers = fixed.Replace(path), headers
				calls = append(calls, c)
			}
		}
	}
	return calls
}

// headers are those in which a client may name what it has seen.
var headers = []string{
	"If-Match", "If-None-Match", "Last-Event-ID", "Idempotency-Key", "Turnledger-Position", "X-Turnledger-Position",
}

var readsWithABody = []string{
	"/v1/search", "/v1/similar", "/v1/sessions/query", "/v1/sessions/{session_id}/context",
}

// with returns the call with the position in a parameter.
func (c asking) with(parameter map[string]any, fixed *strings.Replacer) asking {
	name := parameter["name"].(string)
	switch parameter["in"] {
	case "path":
		c.path = strings.ReplaceAll(c.path, "{"+name+"}", "{x}")
	case "query":
		c.path += "?" + name + "={x}"
	case "header":
		c.headers = []string{name}
	}
	c.path, c.exact = fixed.Replace(c.path), slices.Contains(exact, name)
	c.text = !c.exact && parameter["in"] != "path"
	return c
}

// described is an OpenAPI document.
type described struct{ all map[string]any }

// bodies returns the plain body of an operation, and for each member one in which that has the position.
func (d described) bodies(operation map[string]any, known holding) (plain, contentType string, each map[string]string) {
	request, _ := operation["requestBody"].(map[string]any)
	content, _ := request["content"].(map[string]any)
	for contentType, media := range content {
		schema := d.resolved(media.(map[string]any)["schema"])
		base := map[string]any{}
		for _, name := range append([]string{"content", "request_id"}, texts(schema["required"])...) {
			if properties, _ := schema["properties"].(map[string]any); properties[name] != nil {
				base[name] = "again"
			}
		}
		if base["through_turn_id"] != nil {
			base["through_turn_id"] = known.turn
		}
		each = map[string]string{}
		for member, value := range d.members(schema) {
			body := maps.Clone(base)
			body[member] = value
			each[member] = encoded(body)
			if inner, nested := value.(map[string]any); nested {
				delete(each, member)
				for name, value := range inner {
					body[member] = map[string]any{name: value}
					each[name] = encoded(body)
				}
			}
		}
		return encoded(base), contentType, each
	}
	return "", "", nil
}

// members returns each member of a schema with the place of a position.
func (d described) members(schema map[string]any) map[string]any {
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		p := d.resolved(p)
		switch {
		case p["properties"] != nil:
			out[name] = d.members(p)
		case p["type"] == "integer", p["type"] == "number":
			out[name] = "{n}"
		default:
			out[name] = "{x}"
		}
	}
	return out
}

func (d described) resolved(schema any) map[string]any {
	out, _ := schema.(map[string]any)
	if ref, _ := out["$ref"].(string); ref != "" {
		schemas := d.all["components"].(map[string]any)["schemas"].(map[string]any)
		return schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
	}
	return out
}

func texts(list any) (out []string) {
	all, _ := list.([]any)
	for _, one := range all {
		out = append(out, one.(string))
	}
	return out
}

func encoded(body any) string {
	raw, _ := json.Marshal(body) // texts and maps of them
	return string(raw)
}

// openAICalls returns the calls of OpenAI's routes, which that document does not have.
func openAICalls(known holding) (calls []asking) {
	items := "/v1/conversations/" + known.conversation + "/items"
	const reference = `[{"type":"item_reference","id":"{x}"}]`
	for _, of := range [][2]string{
		{"/v1/responses", `{"input":"hi","previous_response_id":"{x}"}`},
		{"/v1/responses", `{"input":"hi","store":false,"previous_response_id":"{x}"}`},
		{"/v1/responses", `{"input":` + reference + `}`},
		{"/v1/responses", `{"input":"hi","conversation":"{x}"}`},
		{"/v1/responses", `{"input":[{"type":"function_call_output","call_id":"{x}","output":"o"}]}`},
		{"/v1/responses/input_tokens", `{"input":"hi","previous_response_id":"{x}"}`},
		{"/v1/responses/compact", `{"input":"hi","previous_response_id":"{x}"}`},
		{"/v1/responses/{x}/cancel", `{}`},
		{"/v1/conversations", `{"items":` + reference + `}`},
		{items, `{"items":` + reference + `}`},
		{"/v1/conversations/{x}", `{"metadata":{"a":"b"}}`},
		{"/v1/conversations/{x}/items", `{"items":[{"role":"user","content":"hi"}]}`},
		// An item may have an id of its client's, which names it from then on.
		{items, `{"items":[{"id":"{x}","role":"user","content":"hi"}]}`},
		{"/v1/responses", `{"input":[{"id":"{x}","role":"user","content":"hi"}]}`},
	} {
		path, body := of[0], of[1]
		exact := strings.Contains(body, "previous_response_id") || strings.Contains(body, "item_reference")
		calls = append(calls, asking{method: http.MethodPost, path: path, body: body, exact: exact})
	}
	for _, path := range []string{
		"/v1/responses/{x}", "/v1/responses/{x}/input_items", "/v1/responses/{x}?stream=true&starting_after=1",
		"/v1/responses/" + known.response + "/input_items?after={x}", "/v1/conversations/{x}",
		"/v1/conversations/{x}/items", "/v1/conversations/{x}/items/{x}", items + "/{x}", items + "?after={x}",
		"/v1/conversations?after={x}", "/v1/models/{x}",
	} {
		calls = append(calls, asking{method: http.MethodGet, path: path, reads: true, exact: path != "/v1/models/{x}"})
	}
	return append(calls, asking{method: http.MethodDelete, path: "/v1/responses/{x}", exact: true},
		asking{method: http.MethodDelete, path: items + "/{x}"}, // what is not there is deleted
		asking{method: http.MethodDelete, path: "/v1/conversations/{x}"})
}
