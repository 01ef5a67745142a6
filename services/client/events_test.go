package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client"
)

// line is an event as the server prints it; the text holds what looks like a position.
func line(seq int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"e%d","source":"\",\"position\":\"7:7","type":"t","subject":"s","position":"0:%d","recordedat":"2026-11-21T08:00:00Z","data":{"position":"9:9"}}`+"\n", seq, seq)
}

// brokenLog is a server whose log has some events, and which breaks off after each few, in
// the middle of a line.
func brokenLog(held, atOnce int, asked *atomic.Int64) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			after := 0
			if from, err := events.ParsePositions(r.URL.Query().Get("from")); err == nil {
				after = int(from[0].Seq)
			}
			h := w.Header()
			h.Set("Turnledger-From", fmt.Sprintf("0:%d", after))
			h.Set("Turnledger-End", fmt.Sprintf("0:%d", held))
			h.Set("Trailer", "Turnledger-Position")
			for seq := after + 1; seq <= held; seq++ {
				_, _ = w.Write([]byte(line(seq) + "\n"))
				if seq-after == atOnce {
					_, _ = w.Write([]byte(line(seq + 1)[:40]))
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
			}
			h.Set("Turnledger-Position", fmt.Sprintf("0:%d", held+3))
		})
	}
}

func TestEventsGoOnWhereTheyBrokeOff(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := stub(t, brokenLog(30, 7, &asked))
	reading := s.client(nil).Events(client.EventQuery{Types: []string{"a", "b"}})
	var got []uint64
	for e, err := range reading.All(t.Context()) {
		require.NoError(t, err)
		require.True(t, json.Valid(e.JSON))
		got = append(got, e.Position.Seq)
		passed, total := reading.Progress()
		require.Equal(t, []uint64{e.Position.Seq, 30}, []uint64{passed, total})
	}
	require.Len(t, got, 30)
	for i, seq := range got {
		require.Equal(t, uint64(i+1), seq)
	}
	require.Equal(t, int64(5), asked.Load())
	require.Equal(t, "0:33", reading.Position(), "what the query left out at the end is passed, too")
}

func TestEventsGiveUp(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	never := refusing(t, http.StatusServiceUnavailable, &asked)
	c := never.client(func(c *client.Config) { c.Tries = 3 })
	require.Equal(t, http.StatusServiceUnavailable, failure(t, c.Events(client.EventQuery{})).Status)
	require.Equal(t, int64(3), asked.Load())

	asked.Store(0)
	refused := refusing(t, http.StatusUnprocessableEntity, &asked)
	require.Equal(t, "some_code", failure(t, refused.client(nil).Events(client.EventQuery{})).Code)
	require.Equal(t, int64(1), asked.Load())
}

// refusing is a server that always answers with a problem.
func refusing(t *testing.T, status int, asked *atomic.Int64) *server {
	t.Helper()
	return stub(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"code":"some_code"}`))
		})
	})
}

func failure(t *testing.T, reading *client.Events) *client.Error {
	t.Helper()
	for _, err := range reading.All(t.Context()) {
		var p *client.Error
		require.ErrorAs(t, err, &p)
		return p
	}
	t.Fatal("no error")
	return nil
}

func TestEventsEndWithTheirReader(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	srv := stub(t, brokenLog(30, 100, &asked))
	reading := srv.client(nil).Events(client.EventQuery{})
	for e, err := range reading.All(t.Context()) {
		require.NoError(t, err)
		if e.Position.Seq == 4 {
			break
		}
	}
	require.Equal(t, "0:4", reading.Position())
	// A second All goes on after it.
	for e, err := range reading.All(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, uint64(5), e.Position.Seq)
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range reading.All(ctx) {
		require.ErrorIs(t, err, context.Canceled)
	}
}
