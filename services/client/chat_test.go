package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/client"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chat "github.com/turnledger/turnledger/services/model/openai"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

// alone is the presence of a process that is the only one.
type alone struct{}

func (alone) Announce(uuid.UUID, func() answer.Answering) (func(), error) { return func() {}, nil }

func (alone) Present(context.Context, uuid.UUID) (bool, answer.Answering, error) {
	return false, answer.Answering{}, nil
}

func (alone) Claimed(context.Context, uuid.UUID) (uint64, error) { return 0, nil }

func (alone) Claim(context.Context, uuid.UUID, uint64) (bool, error) { return true, nil }

// answered is a server whose chat is answered by a script.
func answered(
	t *testing.T, script func(prompt []string) modeltest.Answer, wrap func(http.Handler) http.Handler,
) (*server, *modeltest.Server) {
	t.Helper()
	endpointOf := modeltest.New(t, script)
	log := natstest.Log(t, 1)
	s := servicetest.Start(t, log, servicetest.Config{
		History: write.Config{Rules: rules}, Reader: read.Config{Rules: rules},
	})
	answers := answer.New(answer.Config{
		Ports: services.Ports{
			Turns: s.History, Messages: s.History, SessionWrites: s.History, Lookup: s.Reader, Sessions: s.Reader,
		},
		States: s.Reader, Questions: s.Reader, Contexts: s.Contexts, Presence: alone{}, Log: log,
		IDs:   items.Minter{Key: []byte("key of the test")},
		Model: chat.New(endpoint.Config{URL: endpointOf.URL + "/v1", Key: "k", Name: "m"}),
	})
	api := s.API(wire.Config{Open: true}, v1.Config{Ports: services.Ports{Chat: answers, Running: answers}})
	return startAPI(t, api, wrap), endpointOf
}

// heard is what a reading of an answer told.
type heard struct {
	turn, text string
	last       int
	done       *client.ChatReply
}

func (h *heard) note(e client.AnswerEvent) {
	if e.TurnID != "" {
		h.turn = e.TurnID
	}
	if e.Anew {
		h.text = ""
	}
	h.text += e.Text
	h.last = e.Number
	if e.Done != nil {
		h.done = e.Done
	}
}

// An answer is left and joined again, from its beginning or behind what was seen, and stopped.
func TestAnAnswerIsLeftAndJoined(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	s, _ := answered(t, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: "One two three.", Hold: held}
	}, nil)
	c := s.client(nil)
	var first heard
	for e, err := range c.Chat(t.Context(), client.ChatMessage{ThreadID: "t", RequestID: "r", Content: "q"}) {
		require.NoError(t, err)
		if first.note(e); first.text != "" {
			break // and the answer goes on
		}
	}
	require.Equal(t, "One ", first.text)
	close(held)
	whole, rest := heard{}, first
	for e, err := range c.Chat(t.Context(), client.ChatMessage{ThreadID: "t", RequestID: "r", Content: "q"}) {
		require.NoError(t, err)
		whole.note(e)
	}
	require.Equal(t, "One two three.", whole.text)
	require.Equal(t, first.turn, whole.done.TurnID)
	_ = rest
	for _, err := range c.Attach(t.Context(), "t", "", 0) {
		require.ErrorIs(t, err, client.ErrNotRunning)
	}
	stopped, err := c.Stop(t.Context(), "t", "")
	require.NoError(t, err)
	require.Empty(t, stopped)
}

func TestAnAnswerIsAttachedAndStopped(t *testing.T) {
	t.Parallel()
	s, _ := answered(t, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: "One two three.", Stall: true}
	}, nil)
	c := s.client(nil)
	var first, joined, later heard
	for e, err := range c.Chat(t.Context(), client.ChatMessage{ThreadID: "t", Content: "q"}) {
		require.NoError(t, err)
		if first.note(e); first.text != "" {
			break
		}
	}
	for e, err := range c.Attach(t.Context(), "t", first.turn, 0) {
		require.NoError(t, err)
		if joined.note(e); joined.text == first.text {
			break
		}
	}
	require.Equal(t, first, joined)
	stopped := false
	for e, err := range c.Attach(t.Context(), "t", "", first.last-1) {
		require.NoError(t, err)
		later.note(e)
		if !stopped {
			turn, err := c.Stop(t.Context(), "t", "")
			require.NoError(t, err)
			require.Equal(t, first.turn, turn)
			stopped = true
		}
	}
	require.Equal(t, first.text, later.text)
	require.Equal(t, "stopped", later.done.FinishReason)
}

// An answer whose connection breaks is told once and whole, wherever it breaks: before its beginning, in the middle, at
// its end, and where nothing runs any more.
func TestAnAnswerOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	for n := range 12 {
		s, model := answered(t, func([]string) modeltest.Answer {
			return modeltest.Answer{Text: "One two three four five."}
		}, nil)
		var got heard
		c := s.client(func(c *client.Config) { c.Transport = &cutting{after: 40 * n} })
		for e, err := range c.Chat(t.Context(), client.ChatMessage{ThreadID: "t", Content: "q"}) {
			require.NoError(t, err)
			got.note(e)
		}
		require.Equal(t, "One two three four five.", got.text, n)
		require.Equal(t, got.text, got.done.Content)
		require.Len(t, model.Asked, 1, "the model is asked once")
	}
}

// cutting is a transport that cuts the first answer after so many bytes.
type cutting struct {
	after int
	seen  atomic.Int32
}

func (c *cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && c.seen.Add(1) == 1 {
		resp.Body = &cutBody{resp.Body, c.after}
	}
	return resp, err
}

type cutBody struct {
	io.ReadCloser
	left int
}

func (c *cutBody) Read(b []byte) (int, error) {
	if c.left == 0 {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// Why there is no answer is an error.
func TestAnAnswerThatFails(t *testing.T) {
	t.Parallel()
	s, _ := answered(t, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: "One two three.", Malformed: true}
	}, nil)
	var got heard
	var failed error
	for e, err := range s.client(nil).Chat(t.Context(), client.ChatMessage{ThreadID: "t", Content: "q"}) {
		if failed = err; err == nil {
			got.note(e)
		}
	}
	require.ErrorIs(t, failed, &client.Error{Code: "model_failed"})
	require.True(t, strings.HasPrefix("One two three.", got.text), got.text)
	for _, err := range s.client(nil).Chat(t.Context(), client.ChatMessage{ThreadID: "t"}) {
		require.ErrorIs(t, err, &client.Error{Code: "invalid_argument"})
	}
}
