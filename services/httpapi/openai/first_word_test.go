package openai_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// reading counts what a response reads of the log and of its session, and what it had read when the model was asked.
type reading struct {
	answer.Log
	services.SessionReader
	answer.Echo

	n, before atomic.Int64
}

func (r *reading) At(ctx context.Context, at events.Position) (events.Recorded, bool, error) {
	r.n.Add(1)
	return r.Log.At(ctx, at)
}

func (r *reading) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	r.n.Add(1)
	return r.SessionReader.Read(ctx, ask)
}

func (r *reading) Answer(
	ctx context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	r.before.Store(r.n.Load())
	return r.Echo.Answer(ctx, p, emit)
}

// A question is recorded, and the model asked, without a look at what stands there, and without reading the question
// back. All that the response says before its answer is as another process reads it later.
//
//conformance:o65
func TestTheModelIsAskedWithoutReadingTheQuestionBack(t *testing.T) {
	t.Parallel()
	var reads reading
	s := start(t, answeredAs(&reads, func(r *answer.Config) {
		reads.Log, reads.SessionReader = r.Log, r.Sessions
		r.Log, r.Sessions = &reads, &reads
	}))
	other := startOn(t, s.log, answeredBy(answer.Echo{}))
	id := s.begin(user("q"), assistant("a"))
	for name, where := range map[string]string{
		"a session of its own": ``, "a conversation": `,"conversation":"` + id + `"`,
	} {
		reads.n.Store(0)
		body := `{"input":"now?","metadata":{"k":"<v>"},"stream":true` + where + `}`
		stream := eventsOf(t, s.do("POST", "/v1/responses", body).raw)
		require.Zero(t, reads.before.Load(), name)
		begun := stream[0]["response"].(map[string]any)
		read := other.must("GET", "/v1/responses/"+begun["id"].(string), "")
		require.NotZero(t, read["created_at"])
		for _, later := range []string{"status", "output", "usage", "completed_at"} {
			delete(begun, later)
			delete(read, later)
		}
		require.Equal(t, begun, read, name)
	}
	require.Contains(t, texts(s.list(id, 10))[3], "You said: now? (2 messages before)")
}

// flushes counts what is sent piece by piece.
type flushes struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (f flushes) Flush() {
	f.n.Add(1)
	_ = http.NewResponseController(f.ResponseWriter).Flush()
}

func (f flushes) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// Events that come together are sent together: two before the answer, three with its first word, and all at its end.
//
//conformance:o65
func TestEventsThatComeTogetherAreSentTogether(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.api.ServeHTTP(flushes{w, &n}, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	a := s.do("POST", "/v1/responses", `{"input":"now?","stream":true}`)
	require.Equal(t, http.StatusOK, a.status)
	deltas := strings.Count(a.raw, "event: response.output_text.delta")
	require.Positive(t, deltas)
	require.EqualValues(t, 1+deltas+1, n.Load())
}
