package v1_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/read"
)

// talkative says more than the buffers on the way to a client hold, and closes the channel
// when it has said it all.
type talkative chan struct{}

func (c talkative) Send(_ context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply,
	error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	for range 500 {
		to.Piece(said(strings.Repeat("word ", 20_000)))
	}
	close(c)
	return services.ChatReply{}, nil
}

// streamOf sends a message and gives the stream of its answer.
func streamOf(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/threads/t/messages/stream",
		strings.NewReader(`{"content":"c"}`))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// TestAClientThatTakesNothingHoldsNoAnswerUp: a telephone that is out of reach does not
// close its connection, and its answer is recorded all the same.
func TestAClientThatTakesNothingHoldsNoAnswerUp(t *testing.T) {
	t.Parallel()
	said := make(talkative)
	s := startOn(t, natstest.Log(t, 1), func(c *config, _ *history.Config, _ *read.Config) {
		c.Chat, c.StreamPatience = said, 100*time.Millisecond
	})
	streamOf(t, s.url)
	select {
	case <-said:
	case <-time.After(hang.Limit):
		require.Fail(t, "the answer waits for its client")
	}
}

// thoughtful answers after a time.
type thoughtful time.Duration

func (d thoughtful) Send(_ context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply,
	error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	<-time.After(time.Duration(d))
	return services.ChatReply{ThreadID: m.ThreadID, Content: "a"}, nil
}

// TestALongAnswerIsSent: a chat may wait for others and then for its model, longer than
// other calls have to answer.
func TestALongAnswerIsSent(t *testing.T) {
	t.Parallel()
	s := startOn(t, natstest.Log(t, 1), func(c *config, _ *history.Config, _ *read.Config) {
		c.Chat = thoughtful(500 * time.Millisecond)
	})
	s.url = "http://" + s.served(wire.ServerConfig{WriteTimeout: 100 * time.Millisecond})
	a := s.do("POST", "/v1/threads/t/messages", `{"content":"c"}`)
	require.Equal(t, http.StatusOK, a.status)
}

// bounded answers with the time that it was given; it was given none at first.
type bounded time.Duration

func (b *bounded) Send(ctx context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply,
	error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	end, _ := ctx.Deadline()
	*b = bounded(time.Until(end))
	return services.ChatReply{ThreadID: m.ThreadID, Content: "a"}, nil
}

// A model that sends a byte now and then holds neither form of a message for ever.
func TestAnAnswerHasADeadline(t *testing.T) {
	t.Parallel()
	var given bounded
	s := startOn(t, natstest.Log(t, 1), func(c *config, _ *history.Config, _ *read.Config) {
		c.Chat = &given
	})
	for _, path := range []string{"/v1/threads/t/messages", "/v1/threads/t/messages/stream"} {
		given = 0
		require.Equal(t, http.StatusOK, s.do("POST", path, `{"content":"c"}`).status)
		require.Greater(t, time.Duration(given), time.Minute, path)
		require.LessOrEqual(t, time.Duration(given), 5*time.Minute, path)
	}
}

// refusing is what the model's endpoint says to every message.
type refusing services.ModelRefusal

func (r *refusing) Send(context.Context, services.ChatMessage, services.Listener) (services.ChatReply, error) {
	return services.ChatReply{}, fmt.Errorf("%w: %w", services.ErrModelFailed, (*services.ModelRefusal)(r))
}

// A refusal of the model's endpoint is told by its status, and when the endpoint may be asked again.
func TestARefusalOfTheModelIsTold(t *testing.T) {
	t.Parallel()
	s := startOn(t, natstest.Log(t, 1), func(c *config, _ *history.Config, _ *read.Config) {
		c.Chat = &refusing{Status: http.StatusTooManyRequests, After: 7 * time.Second}
	})
	a := s.do("POST", "/v1/threads/t/messages", `{"content":"c"}`)
	requireProblem(t, a, http.StatusBadGateway, "model_failed")
	require.Contains(t, a.body["detail"], "429")
	require.Equal(t, "7", a.header.Get("Retry-After"))
}

// waiting answers when it may.
type waiting chan struct{}

func (w waiting) Send(ctx context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply,
	error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	select {
	case <-w:
		return services.ChatReply{ThreadID: m.ThreadID, Content: "a"}, nil
	case <-ctx.Done():
		return services.ChatReply{}, ctx.Err()
	}
}

// TestAStreamThatWaitsIsNoDeadConnection: a message waits for those before it, and proxies
// close connections on which nothing comes.
func TestAStreamThatWaitsIsNoDeadConnection(t *testing.T) {
	t.Parallel()
	answer := make(waiting)
	s := startOn(t, natstest.Log(t, 1), func(c *config, _ *history.Config, _ *read.Config) {
		c.Chat, c.Heartbeat = answer, 20*time.Millisecond
	})
	resp := streamOf(t, s.url)
	var events []string
	beats := 0
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if strings.HasPrefix(in.Text(), "event: ") {
			events = append(events, in.Text())
		}
		if in.Text() == ": heartbeat" {
			if beats++; beats == 3 {
				close(answer)
			}
		}
	}
	require.Equal(t, []string{"event: begun", "event: done"}, events)
}

func said(text string) services.AnswerPiece {
	return services.AnswerPiece{AnswerPart: services.AnswerPart{Kind: services.PartText, Text: text}}
}
