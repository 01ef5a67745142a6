package v1_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/history"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/read"
)

// clocked knows the deadlines of a connection.
type clocked struct {
	*httptest.ResponseRecorder

	writing, reading time.Time
}

func (c *clocked) SetWriteDeadline(t time.Time) error { c.writing = t; return nil }
func (c *clocked) SetReadDeadline(t time.Time) error  { c.reading = t; return nil }

// slowly works between the pieces of long bodies, and notes the deadlines there.
type slowly struct {
	v1.Backups
	services.ProjectionKeeper

	c    *clocked
	seen []time.Time
}

func (s *slowly) work() { s.seen = append(s.seen, s.c.writing, s.c.reading) }

func (s *slowly) Send(_ context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply, error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	s.work()
	to.Piece(said("a"))
	s.work()
	return services.ChatReply{ThreadID: m.ThreadID, Content: "a"}, nil
}

func (s *slowly) Verify(_ context.Context, _ string, _ int, progress func(done, of uint64) error,
	_ func(projections.Difference) error) (int, error) {
	s.work()
	err := progress(1, 2)
	s.work()
	return 2, err
}

func (s *slowly) Snapshot(_ context.Context, _ int, begin func(operate.Moment) (io.Writer, error)) error {
	s.work()
	to, err := begin(operate.Moment{})
	if err == nil {
		_, err = to.Write([]byte("piece"))
	}
	s.work()
	return err
}

func (s *slowly) Restore(_ context.Context, from io.Reader) (out services.Restored, err error) {
	s.work()
	_, err = from.Read(make([]byte, 1))
	s.work()
	return out, err
}

// TestWhoWorksBetweenPiecesHasNoDeadline: HTTP/2 ends a stream at its deadline, whether
// anybody writes or not, so that a model that thinks for longer than a client may take for a
// piece lost its stream, and a restore that took minutes its answer.
func TestWhoWorksBetweenPiecesHasNoDeadline(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"POST /v1/threads/t/messages/stream", "POST /v1/projections/p/verify",
		"GET /v1/partitions/0/snapshot", "POST /v1/restore"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			c := &clocked{ResponseRecorder: httptest.NewRecorder()}
			work := &slowly{c: c}
			s := startOn(t, natstest.Log(t, 1), func(c *config, _ *history.Config, _ *read.Config) {
				c.Chat, c.Keeper, c.Backups = work, work, work
			})
			method, path, _ := strings.Cut(call, " ")
			body := ""
			if !strings.HasSuffix(path, "/verify") && !strings.HasSuffix(path, "/snapshot") {
				body = `{"content":"c"}`
			}
			r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			s.api.ServeHTTP(c, r)
			require.Equal(t, http.StatusOK, c.Code, c.Body)
			require.Equal(t, make([]time.Time, 4), work.seen, "none while it works")
			require.False(t, c.writing.IsZero(), "and one for the end of the answer")
		})
	}
}

// hanging is a command side that answers only when its caller gives up.
type hanging struct{ services.TurnWriter }

func (hanging) StartTurn(ctx context.Context, _ conversation.Start) (services.Turn, error) {
	select {
	case <-ctx.Done():
		return services.Turn{}, fmt.Errorf("%w: %w", jetlog.ErrUnavailable, ctx.Err())
	case <-time.After(2 * time.Minute):
		return services.Turn{}, errors.New("nobody gave up")
	}
}

func (h hanging) StartTurns(ctx context.Context, commands []conversation.Start) []services.TurnOutcome {
	_, err := h.StartTurn(ctx, commands[0])
	return slices.Repeat([]services.TurnOutcome{{Err: err}}, len(commands))
}

// TestAWriteThatHangsEndsAtTheDeadline: a turn and a batch of turns are answered although the log does not answer.
func TestAWriteThatHangsEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	s := startOn(t, natstest.Log(t, 1), func(c *config, _ *history.Config, _ *read.Config) {
		c.Turns, c.Deadline = hanging{}, 100*time.Millisecond
	})
	one := s.do("POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"q"}`)
	requireProblem(t, one, http.StatusServiceUnavailable, "log_unavailable")
	rows := s.many(manyLine("s", "r1") + manyLine("s", "r2"))
	require.Len(t, rows, 2)
	for _, row := range rows {
		require.EqualValues(t, http.StatusServiceUnavailable, row["http_status"])
		require.Equal(t, "log_unavailable", row["code"])
	}
}
