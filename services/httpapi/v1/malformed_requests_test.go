package v1_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
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
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
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
	require.NotContains(t, s.logs.String(), hidden)
	require.NotContains(t, s.logs.String(), "panic")
	require.Less(t, int64(heap())-int64(before), int64(64<<20), "memory that is kept")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
