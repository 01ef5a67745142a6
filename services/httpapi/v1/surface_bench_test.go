package v1_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
)

// instant answers each write at once with the turn that the caller sent.
type instant struct{ services.TurnWriter }

func (instant) StartTurn(_ context.Context, c conversation.Start) (services.Turn, error) {
	return services.Turn{SessionID: c.SessionID, Position: events.Position{Seq: 42}, Turn: conversation.Turn{
		ID: events.TurnID(c.SessionID, c.RequestID), RequestID: c.RequestID, Version: 1, CreatedAt: time.Unix(1, 0),
		Question: &c.Question,
	}}, nil
}

func (instant) FinalizeTurn(_ context.Context, c conversation.Finalize) (services.Turn, error) {
	return services.Turn{SessionID: c.SessionID, Position: events.Position{Seq: 43}, Turn: conversation.Turn{
		ID: c.TurnID, RequestID: "r", Version: 1, CreatedAt: time.Unix(1, 0), FinalizedAt: time.Unix(2, 0),
		Question: &events.Question{QuestionNeutral: prose}, Answer: &c.Answer,
	}}, nil
}

// unread is a response that nobody reads.
type unread struct{ header http.Header }

func (u *unread) Header() http.Header         { return u.header }
func (u *unread) Write(b []byte) (int, error) { return len(b), nil }
func (u *unread) WriteHeader(int)             {}

// BenchmarkSurface measures what the surface itself costs: from a parsed request to the written answer of a start
// and of a finalize, whose ports answer at once. Sockets, net/http and the log are not in it.
func BenchmarkSurface(b *testing.B) {
	api := openAPI(v1.Config{Ports: services.Ports{Turns: instant{}}})
	id := events.TurnID("s", "r").String()
	question, answer := strings.Repeat("q", 120), strings.Repeat("a", 600)
	for name, call := range map[string]struct{ path, body string }{
		"start": {"/v1/sessions/s/turns",
			`{"request_id":"r","pipeline_name":"bench","question_neutral":"` + question + `"}`},
		"finalize": {"/v1/sessions/s/turns/" + id + "/finalize", `{"answer_neutral":"` + answer + `"}`},
	} {
		b.Run(name, func(b *testing.B) {
			check := httptest.NewRecorder()
			api.ServeHTTP(check, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost"+call.path,
				strings.NewReader(call.body)))
			require.Less(b, check.Code, 300, check.Body)
			body := bytes.NewReader(nil)
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost"+call.path, body)
			r.ContentLength = int64(len(call.body))
			w := &unread{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				body.Reset([]byte(call.body))
				clear(w.header)
				api.ServeHTTP(w, r)
			}
		})
	}
}
