package systemtest_test

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
)

// kind of a call, by what it may answer.
type kind int

const (
	// shows texts to whoever may read them.
	shows kind = iota + 1
	// tells something of sessions or identities, and no text that the caller has not sent.
	tells
	// operates on views, backups and the log as a whole: it is not called here.
	operates
)

// kinds of all calls. A call that is not among them fails the test, so that somebody decides what it may show.
var kinds = map[string]kind{
	"POST /v1/sessions/{session_id}/turns":                    shows, // the first question stands
	"POST /v1/sessions/{session_id}/turns/{turn_id}/finalize": shows, // so does the first answer
	"POST /v1/turns":                                            tells,
	"PUT /v1/sessions/{session_id}/identity":                    tells,
	"PATCH /v1/sessions/{session_id}":                           shows, // the title and metadata that stand
	"GET /v1/sessions":                                          shows,
	"POST /v1/sessions/query":                                   shows,
	"POST /v1/search":                                           shows,
	"POST /v1/similar":                                          tells, // systemtest/meaning has its texts
	"GET /v1/stats":                                             tells,
	"POST /v1/sessions/{session_id}/fork":                       tells,
	"POST /v1/sessions/{session_id}/summaries":                  shows, // the first summary of the request
	"GET /v1/sessions/{session_id}/summaries":                   shows,
	"POST /v1/sessions/{session_id}/turns/{turn_id}/redact":     tells,
	"POST /v1/sessions/{session_id}/turns/{turn_id}/correct":    tells,
	"POST /v1/sessions/{session_id}/reset":                      tells,
	"GET /v1/sessions/{session_id}":                             tells,
	"GET /v1/sessions/{session_id}/turns":                       shows,
	"GET /v1/sessions/{session_id}/history":                     shows,
	"POST /v1/sessions/{session_id}/context":                    shows,
	"GET /v1/identities/{identity_id}/turns":                    shows,
	"DELETE /v1/sessions/{session_id}":                          tells,
	"DELETE /v1/identities/{identity_id}":                       tells,
	"GET /v1/receipts/{id}":                                     tells,
	"GET /v1/receipts":                                          tells,
	"GET /v1/keys":                                              tells,
	"GET /v1/events":                                            shows,
	"POST /v1/threads/{thread_id}/messages":                     tells,
	"POST /v1/threads/{thread_id}/messages/stream":              tells,
	"GET /v1/threads/{thread_id}/messages/stream":               tells, // nothing runs here
	"POST /v1/threads/{thread_id}/stop":                         tells,
	"GET /v1/streams/sessions/{session_id}":                     shows,
	"HEAD /v1/streams/sessions/{session_id}":                    tells,
	"GET /v1/sessions/{session_id}/turns/{turn_id}/explanation": shows,
	"GET /v1/streams/sessions/{session_id}/answers/{turn_id}":   tells, // no answer of a model is here
	"GET /v1/ui/chat/{chat_id}/messages":                        shows,
	"GET /v1/ui/chat/{chat_id}/stream":                          tells, // nothing runs here
	"POST /v1/ui/chat":                                          tells,
	"POST /v1/ui/chat/{chat_id}/stop":                           tells,
	"GET /v1/whatif":                                            tells,
	"POST /v1/whatif":                                           tells,
	"GET /v1/identities/{identity_id}/archive":                  shows,
	"POST /v1/tokens":                                           tells,
	"POST /v1/chat":                                             tells,
	"POST /v1/chat/stream":                                      tells,
	"GET /v1/projections":                                       tells,
	"GET /v1/deadletters":                                       tells,
	"GET /v1/deadletters/{projection}/{position}":               tells,
	"POST /v1/deadletters/{projection}/{position}/retry":        operates,
	"POST /v1/deadletters/{projection}/{position}/drop":         operates,
	"POST /v1/projections/{name}/rebuild":                       operates,
	"DELETE /v1/projections/{name}/rebuild":                     operates,
	"POST /v1/projections/{name}/verify":                        tells,
	"GET /v1/streams":                                           tells,
	"POST /v1/streams":                                          operates,
	"POST /v1/retention":                                        operates,
	"GET /v1/partitions/{partition}/snapshot":                   operates, // the bytes of the log, which an eraser erases
	"POST /v1/restore":                                          operates,
}

// reads reports whether a call shows texts and records nothing.
func reads(pattern string) bool {
	return kinds[pattern] == shows && (strings.HasPrefix(pattern, "GET") || strings.HasSuffix(pattern, "/context") ||
		pattern == "POST /v1/sessions/query" || pattern == "POST /v1/search")
}

// look is a way to call a call, beside the path: what has the texts in it before the erasure.
type look struct {
	query, body string
}

// member names what calls are made for: a session of the identity with its turn.
type subject struct {
	session, identity, turn string
	recorded                time.Time
}

// looks returns the ways to call a call, with a placeholder for the session in each.
func (m subject) looks(pattern string) []look {
	message := func(rest string) look { return look{body: `{"message":"which cats?"` + rest + `}`} }
	switch pattern {
	case "GET /v1/sessions/{session_id}/turns":
		return []look{{}, {query: "?status=all"}, {query: "?limit=10000"}}
	case "POST /v1/sessions/{session_id}/context":
		return []look{
			message(""), message(`,"include_pending":true,"max_messages":100000`), message(`,"format":"anthropic"`),
			message(fmt.Sprintf(`,"as_of":{"time":%q}`, m.recorded.Format(time.RFC3339Nano))),
			message(`,"conversation_history":[],"memory":true`),
		}
	case "GET /v1/events":
		return []look{{}, {query: "?session_id=" + m.session}, {query: "?identity_id=" + m.identity}}
	case "GET /v1/sessions":
		return []look{{}, {query: "?identity_id=" + m.identity}}
	case "POST /v1/sessions/query":
		return []look{{body: `{}`}, {body: `{"identity_id":"` + m.identity + `"}`}, {body: `{"title":"SEC"}`}}
	case "POST /v1/search":
		return []look{{body: `{"query":"cats"}`}, {body: `{"query":"cats","identity_id":"` + m.identity + `"}`}}
	case "POST /v1/sessions/{session_id}/fork":
		return []look{{body: `{"request_id":"f"}`}}
	case "POST /v1/sessions/{session_id}/summaries":
		return []look{{body: `{"request_id":"sum","through_turn_id":"` + m.turn + `","summary_neutral":"another"}`}}
	case "PATCH /v1/sessions/{session_id}":
		return []look{{body: `{"metadata":{"k":"v"}}`}}
	case "POST /v1/sessions/{session_id}/turns":
		return []look{{body: `{"request_id":"r1","question_neutral":"another"}`}}
	case "POST /v1/sessions/{session_id}/turns/{turn_id}/finalize":
		return []look{{body: `{"answer_neutral":"another"}`}}
	case "POST /v1/sessions/{session_id}/turns/{turn_id}/correct":
		return []look{{body: `{"request_id":"c1","answer_neutral":"another"}`}}
	case "PUT /v1/sessions/{session_id}/identity":
		return []look{{body: `{"identity_id":"` + m.identity + `"}`}}
	case "POST /v1/chat", "POST /v1/chat/stream":
		return []look{{body: `{"content":"which cats?","thread_id":"` + m.session + `"}`}}
	case "POST /v1/threads/{thread_id}/messages", "POST /v1/threads/{thread_id}/messages/stream":
		return []look{{body: `{"content":"which cats?"}`}}
	default:
		return []look{{}}
	}
}

// ask makes a call for the member, and returns the status and the bytes.
func (m subject) ask(t *testing.T, p *stack.Process, pattern, receipt string, l look) (int, string) {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.NewReplacer("{session_id}", m.session, "{thread_id}", m.session, "{chat_id}", m.session,
		"{identity_id}", m.identity, "{turn_id}", m.turn, "{id}", receipt, "{name}", "recent", "{projection}", "recent",
		"{position}", "0:1").Replace(path)
	require.NotContains(t, path, "{", "what stands there in a path of this test?")
	req := must.Get(http.NewRequestWithContext(t.Context(), method, p.URL+path+l.query, strings.NewReader(l.body)))(t)
	resp := must.Get(http.DefaultClient.Do(req))(t)
	defer func() { _ = resp.Body.Close() }()
	raw := must.Get(io.ReadAll(resp.Body))(t)
	if resp.Header.Get("Content-Type") == "application/zip" {
		raw = unzipped(t, raw)
	}
	return resp.StatusCode, string(raw)
}

// unzipped returns all that the files of a zip hold.
func unzipped(t *testing.T, raw []byte) (all []byte) {
	t.Helper()
	for _, f := range must.Get(zip.NewReader(bytes.NewReader(raw), int64(len(raw))))(t).File {
		r := must.Get(f.Open())(t)
		all = append(all, must.Get(io.ReadAll(r))(t)...)
		require.NoError(t, r.Close())
	}
	return all
}

// documented returns the calls that a process says it has.
func documented(t *testing.T, p *stack.Process) (out []string) {
	t.Helper()
	for path, item := range p.Get(t, "/openapi.json")["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			out = append(out, strings.ToUpper(method)+" "+path)
		}
	}
	require.Greater(t, len(out), 25)
	return out
}

// same returns an answer without what tells one session, or one place in the log, from another.
func same(t *testing.T, raw string, m subject) string {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(raw), &out), raw)
	for _, name := range []string{"position", "source"} {
		delete(out, name)
	}
	return strings.ReplaceAll(fmt.Sprint(out), m.session, "session")
}

// Every call of the document is made for a session of an erased identity, while no eraser runs and the log and all
// views still hold its texts. Those that read answer as for a session, or an identity, that there is not.
func TestNoCallShowsAnErasedIdentity(t *testing.T) {
	t.Parallel()
	env, nats := []string{"TURNLEDGER_PARTITIONS=2", "TURNLEDGER_POSTGRES_URL=" + pg.URL(t)}, stack.FreeAddress(t)
	p := stack.Serve(t, append(append(stack.ServeNATS(nats), stack.NewModel(t).Env()...), env...),
		"--roles", "api,context,recent,audit,chat")
	other := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "api,context,recent")
	m := subject{session: "erased", identity: "alice"}
	m.turn = p.RecordTurn(t, m.session, "r1", "SECRET cats", "SECRET cats, too")
	p.LinkIdentity(t, m.session, m.identity)
	p.Must(t, http.StatusOK, http.MethodPatch, stack.SessionPath(m.session), map[string]any{"title": "SECRET title"})
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(m.session)+"/summaries",
		map[string]any{"request_id": "sum", "through_turn_id": m.turn, "summary_neutral": "SECRET summary"})
	p.WaitCaughtUp(t, "recent", "audit")
	m.recorded = time.Now()
	calls := documented(t, p)
	for _, pattern := range calls {
		require.Contains(t, kinds, pattern, "say in kinds what it may show")
		if kinds[pattern] != shows {
			continue
		}
		for _, l := range m.looks(pattern) {
			_, raw := m.ask(t, p, pattern, "", l)
			require.Contains(t, raw, "SECRET", "the test sees what %s%s shows, with %s", pattern, l.query, l.body)
		}
	}

	receipt := p.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/alice", nil)["receipt_id"].(string)
	nobody := subject{session: "unknown", identity: "nobody", turn: m.turn, recorded: m.recorded}
	// First, since a write closes the session, and then the views have nothing of it.
	slices.SortFunc(calls, func(a, b string) int { return cmp.Compare(fmt.Sprint(!reads(a)), fmt.Sprint(!reads(b))) })
	for _, pattern := range calls {
		if kinds[pattern] == operates {
			continue
		}
		for _, l := range m.looks(pattern) {
			what := fmt.Sprint(pattern, l.query, " with ", l.body)
			status, raw := m.ask(t, p, pattern, receipt, l)
			require.Less(t, status, http.StatusInternalServerError, what+raw)
			require.NotContains(t, raw, "SECRET", what)
			if !reads(pattern) || slices.Contains([]string{"GET /v1/events", "GET /v1/streams/sessions/{session_id}",
				"GET /v1/identities/{identity_id}/archive"}, pattern) {
				continue // these have the events, redacted, and the receipt
			}
			likewise, of := nobody.ask(t, p, pattern, receipt, l)
			require.Equal(t, likewise, status, what)
			require.Equal(t, same(t, of, nobody), same(t, raw, m), what)
			_, raw = m.ask(t, other, pattern, receipt, l)
			require.NotContains(t, raw, "SECRET", "%s, at another process", what)
		}
	}
	for _, at := range []*stack.Process{p, other} {
		require.Equal(t, false, at.Get(t, stack.SessionPath(m.session))["found"])
		again := at.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath(m.session), nil)
		require.Equal(t, receipt, again["receipt_id"])
		at.Must(t, http.StatusGone, http.MethodPost, stack.SessionPath(m.session)+"/turns",
			map[string]any{"request_id": "late", "question_neutral": "q"})
	}
	// An eraser in another process does not know what these two keep in memory.
	stack.Start(t, append(append(stack.JoinNATS(nats), "TURNLEDGER_ERASE_RATE=1000"), env...),
		"serve", "--roles", "eraser")
	for _, at := range []*stack.Process{p, other} {
		require.Equal(t, "done", receiptPlace(t, waitReceipt(t, at, receipt), "recent")["state"])
	}
}

// What was redacted before a call is in no hit, no snippet, no list and no count of it, whichever of two processes
// redacts and whichever is asked, while both are kept busy.
func TestNoSearchShowsARedactedText(t *testing.T) {
	t.Parallel()
	rounds, seed := 10, uint64(1)
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds, seed = 1000, rand.Uint64()
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	nats, postgres := stack.FreeAddress(t), "TURNLEDGER_POSTGRES_URL="+pg.URL(t)
	one := stack.Start(t, append(stack.ServeNATS(nats), postgres), "serve", "--roles", "api,context,recent,audit",
		"--data-dir", stack.DataDir(t))
	other := stack.Start(t, append(stack.JoinNATS(nats), postgres), "serve", "--roles", "api,context")
	both := []*stack.Process{one, other}
	for n := range rounds {
		session, identity := fmt.Sprint("s-", n), fmt.Sprint("i-", n)
		writes, linked := both[rng.IntN(2)], rng.IntN(4) > 0
		if linked {
			writes.LinkIdentity(t, session, identity)
		}
		turns := []string{writes.RecordTurn(t, session, "r1", "first words", "SECRET words"),
			writes.RecordTurn(t, session, "r2", "SECRET words, too", "words")}
		gone := rng.IntN(2)
		if linked {
			require.Len(t, shown(t, both[rng.IntN(2)], session), 2, "both are found at first")
		}
		var redacted atomic.Bool
		var wg sync.WaitGroup
		until := func(look func() any, why string) {
			for after := false; !after && !t.Failed(); {
				after = redacted.Load()
				if got := look(); after {
					assert.NotContains(t, got, turns[gone], why)
				}
			}
		}
		for _, p := range both {
			wg.Go(func() { until(func() any { return shown(t, p, session) }, "a hit") })
			wg.Go(func() { until(func() any { return lastTurn(t, p, session, identity) }, "a list") })
		}
		got := both[rng.IntN(2)].Must(t, http.StatusOK, http.MethodPost,
			stack.SessionPath(session)+"/turns/"+turns[gone]+"/redact", nil)
		redacted.Store(true)
		wg.Wait()
		if !linked {
			require.Empty(t, shown(t, one, session), "an anonymous session is not searched")
		}
		for _, p := range both {
			all := p.Get(t, "/v1/stats?min_position="+got["position"].(string))
			require.Equal(t, []int{n + 1, n + 1}, []int{sumOf(all, "redacted"), sumOf(all, "finalized")})
		}
		if t.Failed() {
			return
		}
	}
}

// shown returns the turns that a search for a word of all turns finds, each with its text.
func shown(t *testing.T, p *stack.Process, session string) map[string]any {
	t.Helper()
	status, page, err := p.Call(context.Background(), http.MethodPost, "/v1/search",
		map[string]any{"query": "secret words", "session_id": session, "limit": 100})
	if !assert.NoError(t, err) || !assert.Equal(t, http.StatusOK, status, page) {
		return nil
	}
	out := map[string]any{}
	for _, h := range page["hits"].([]any) {
		out[h.(map[string]any)["turn_id"].(string)] = h.(map[string]any)["snippet"]
	}
	return out
}

// lastTurn returns the last turn that a list shows of a session, which may be linked to an identity.
func lastTurn(t *testing.T, p *stack.Process, session, identity string) string {
	t.Helper()
	for _, of := range []string{"&identity_id=" + identity, ""} {
		status, page, err := p.Call(context.Background(), http.MethodGet, "/v1/sessions?limit=5"+of, nil)
		if !assert.NoError(t, err) || !assert.Equal(t, http.StatusOK, status, page) {
			return ""
		}
		for _, s := range page["sessions"].([]any) {
			if s := s.(map[string]any); s["session_id"] == session && s["last_turn"] != nil {
				return s["last_turn"].(map[string]any)["turn_id"].(string)
			}
		}
	}
	return ""
}

// sumOf adds up a member of all buckets.
func sumOf(stats map[string]any, member string) (n int) {
	for _, bucket := range stats["buckets"].([]any) {
		n += int(bucket.(map[string]any)[member].(float64))
	}
	return n
}

// What is asked for after a redaction was acknowledged shows no summary of the turn: contexts, those of the past,
// lists, explanations, from whichever process. So it is where the summary stood before, and where it is recorded
// meanwhile, in the session of the turn and in a branch that shares it.
func TestNoSummaryIsShownAfterARedaction(t *testing.T) {
	t.Parallel()
	rounds, seed := 20, uint64(1)
	if stack.Long() {
		rounds, seed = 1000, stack.Seed(t)
	}
	nats := stack.FreeAddress(t)
	env := []string{"TURNLEDGER_PARTITIONS=4"} // a branch may stand in another one than its parent
	first := stack.Start(t, append(stack.ServeNATS(nats), env...), "serve", "--roles", "api,context,eraser",
		"--data-dir", stack.DataDir(t))
	second := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "api,context")
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := range rounds {
		r := &summaryRace{T: t, session: fmt.Sprint("s-", n), late: rng.IntN(2) == 0, gone: rng.IntN(2),
			readers: []*stack.Process{first, second}, posts: first, redacts: second}
		if rng.IntN(4) == 0 {
			r.posts, r.redacts = r.redacts, r.posts
		}
		r.prepare(rng.IntN(2) == 0)
		r.run()
		stands := r.stands(second)
		if rng.IntN(8) == 0 {
			after := second.RecordTurn(t, r.summarised, "after", "question", "answer")
			said := second.Done(t, "explain", r.summarised, after, "--summary", "--max-messages", "2")
			require.Equal(t, stands, strings.Contains(said, "summarised"), said)
		}
		require.False(t, t.Failed(), "round %d of seed %d", n, seed)
	}
}

// summaryRace is the redaction of a turn that a summary covers, and what is read meanwhile. The summary covers two
// turns of session, and is one of summarised, which is that session or its branch.
type summaryRace struct {
	*testing.T
	session, summarised string
	turns               [2]string
	// late: the summary is recorded while the turn is redacted. gone says which turn that is.
	late           bool
	gone           int
	readers        []*stack.Process
	posts, redacts *stack.Process
	// before is the position of the last turn.
	before string
}

// prepare records the turns, and the summary if it is not late.
func (r *summaryRace) prepare(branch bool) {
	r.Helper()
	record := func(session, request string) (id, position string) {
		out := r.posts.Must(r, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/turns",
			map[string]any{"request_id": request, "question_neutral": "question", "answer_neutral": "answer"})
		return out["turn_id"].(string), out["position"].(string)
	}
	for i := range r.turns {
		r.turns[i], _ = record(r.session, fmt.Sprint("r", i))
	}
	if r.summarised = r.session; branch {
		r.summarised += "-branch"
		r.posts.Must(r, http.StatusCreated, http.MethodPost, stack.SessionPath(r.session)+"/fork",
			map[string]any{"request_id": "f", "session_id": r.summarised})
	}
	if !r.late {
		require.Equal(r, http.StatusCreated, r.post())
	}
	_, r.before = record(r.summarised, "last")
	for read := range 3 {
		for _, p := range r.readers {
			counts, _ := r.read(p, read)
			require.Equal(r, r.late, len(counts) == 0, "it stands at first")
		}
	}
}

// post records the summary.
func (r *summaryRace) post() int {
	status, _, err := r.posts.Call(r.Context(), http.MethodPost, stack.SessionPath(r.summarised)+"/summaries",
		map[string]any{"request_id": "m", "through_turn_id": r.turns[1], "summary_neutral": "SECRET"})
	assert.NoError(r, err)
	return status
}

// run redacts the turn while others read, until they have read once more after the redaction was acknowledged.
func (r *summaryRace) run() {
	r.Helper()
	var redacted atomic.Bool
	var wg sync.WaitGroup
	for i, p := range r.readers {
		for read := range 3 {
			wg.Go(func() {
				for after := false; !after; {
					after = redacted.Load()
					counts, ok := r.read(p, read)
					if !ok {
						return
					}
					if after {
						r.check(counts, fmt.Sprintf("reader %d, read %d", i, read))
					}
				}
			})
		}
	}
	if r.late {
		wg.Go(func() {
			status := r.post()
			ctx, cancel := context.WithTimeout(r.Context(), hang.Limit)
			defer cancel()
			for status == http.StatusServiceUnavailable && pause.For(ctx, 10*time.Millisecond) {
				status = r.post() // it was voided while the call repeated it
			}
			assert.Contains(r, []int{http.StatusCreated, http.StatusConflict}, status)
		})
	}
	r.redacts.Must(r, http.StatusOK, http.MethodPost,
		stack.SessionPath(r.session)+"/turns/"+r.turns[r.gone]+"/redact", nil)
	redacted.Store(true)
	wg.Wait()
}

// read returns the numbers of turns that the summaries cover which an answer shows: a context, one of the past, a list.
func (r *summaryRace) read(p *stack.Process, read int) (counts []float64, ok bool) {
	asked := map[string]any{"message": "next", "summary": true, "max_messages": 2}
	method, path, body := http.MethodPost, stack.SessionPath(r.summarised), any(asked)
	switch read {
	case 0:
		path += "/context"
	case 1:
		path += "/context"
		asked["as_of"] = map[string]any{"position": r.before}
	default:
		method, path, body = http.MethodGet, path+"/summaries", nil // a GET with a body is refused
	}
	status, got, err := p.Call(context.Background(), method, path, body)
	if !assert.NoError(r, err) || !assert.Equal(r, http.StatusOK, status) {
		return nil, false
	}
	if shown, is := got["summary"].(map[string]any); is {
		counts = append(counts, shown["turns"].(float64))
	} else {
		assert.NotContains(r, fmt.Sprint(got["messages"]), "SECRET")
	}
	list, _ := got["summaries"].([]any)
	for _, m := range list {
		counts = append(counts, m.(map[string]any)["turns"].(float64))
	}
	return counts, true
}

// check says what may stand after the redaction: a summary that was decided after it, of the turn that is left.
func (r *summaryRace) check(counts []float64, what string) {
	if r.late && r.gone == 0 && len(counts) > 0 {
		assert.Equal(r, []float64{1}, counts, what)
		return
	}
	assert.Empty(r, counts, what)
}

// stands reports whether a process shows the summary.
func (r *summaryRace) stands(p *stack.Process) bool {
	counts, ok := r.read(p, 0)
	return ok && len(counts) > 0
}

// A model summarises each session once, though all processes that ask it are killed while it writes, and another one
// asks it again. The summary is shown no more after a redaction.
func TestAModelSummarisesEachSessionOnce(t *testing.T) {
	t.Parallel()
	const sessions = 6
	answers := make(chan struct{})
	model := modeltest.New(t, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: "SECRET of the model", Hold: answers}
	})
	const four = "TURNLEDGER_PARTITIONS=4"
	nats, dir := stack.FreeAddress(t), stack.DataDir(t)
	first := stack.Start(t, append(stack.ServeNATS(nats), four), "serve", "--roles", "api,context,eraser",
		"--data-dir", dir)
	ask := func() *stack.Process {
		return stack.Start(t, append(stack.JoinNATS(nats), four, "TURNLEDGER_SUMMARY_URL="+model.URL+"/v1",
			"TURNLEDGER_SUMMARY_NAME=small"), "serve", "--roles", "api")
	}
	var others []*stack.Process
	for range 3 {
		others = append(others, ask())
	}
	var turn string
	for i := range 20 {
		for s := range sessions {
			id := others[(i+s)%len(others)].RecordTurn(t, fmt.Sprint("s-", s), fmt.Sprint("r", i), "question", "answer")
			if s == 0 && i == 0 {
				turn = id
			}
		}
	}
	partitions := map[int]bool{}
	for s := range sessions {
		partitions[events.Partition(fmt.Sprint("s-", s), 4)] = true
	}
	for range partitions {
		<-model.Asked // each waits for its first answer
	}
	for _, p := range others {
		p.Kill(t)
	}
	close(answers)
	last := ask()
	listed := func(session string) []any {
		return first.Get(t, stack.SessionPath(session)+"/summaries")["summaries"].([]any)
	}
	for s := range sessions {
		hang.Until(t, func() bool { return len(listed(fmt.Sprint("s-", s))) > 0 })
	}
	last.WaitCaughtUp(t, "summaries")
	require.Greater(t, len(partitions)+len(model.Asked), sessions, "some were asked for again")
	for s := range sessions {
		got := listed(fmt.Sprint("s-", s))
		require.Len(t, got, 1)
		require.InDelta(t, 10, got[0].(map[string]any)["turns"], 0)
	}
	body := map[string]any{"message": "next", "summary": true, "max_messages": 2}
	require.NotNil(t, first.BuildContext(t, "s-0", body)["summary"])
	first.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s-0")+"/turns/"+turn+"/redact", nil)
	require.Empty(t, listed("s-0"))
	require.Nil(t, first.BuildContext(t, "s-0", body)["summary"])
}
