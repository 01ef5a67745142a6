package v1_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
)

// letterbox is a queue of one letter, which is applied when it is retried unless it is
// stubborn.
type letterbox struct {
	letter   projections.DeadLetter
	stubborn bool
	err      error
}

func (b *letterbox) Name() string { return "audit" }

func (b *letterbox) DeadLetters(context.Context) ([]projections.DeadLetter, error) {
	return []projections.DeadLetter{b.letter}, b.err
}

func (b *letterbox) RetryDeadLetter(_ context.Context, at events.Position) (projections.Retried, error) {
	if at != b.letter.Position {
		return projections.Retried{}, projections.ErrNoDeadLetter
	}
	b.letter.Attempts++
	return projections.Retried{DeadLetter: b.letter, Applied: !b.stubborn}, b.err
}

func (b *letterbox) DropDeadLetter(_ context.Context, at events.Position, d projections.Drop) (projections.DeadLetter,
	error) {
	if at != b.letter.Position {
		return projections.DeadLetter{}, projections.ErrNoDeadLetter
	}
	b.letter.Dropped = &d
	return b.letter, b.err
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	box := &letterbox{letter: projections.DeadLetter{
		Projection: "audit", Position: events.Position{Partition: 1, Seq: 4}, EventID: "e",
		Type: events.TypeTurnStarted, SessionID: "s",
		Reason: "refused", Attempts: 1, ParkedAt: now,
	}, stubborn: true}
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.DeadLetters = []projections.DeadLetterQueue{box}
		c.v1Config.Now = func() time.Time { return now.Add(time.Hour) }
	})
	row := map[string]any{
		"projection": "audit", "position": "1:4", "event_id": "e", "type": events.TypeTurnStarted, "session_id": "s",
		"state":  "waiting",
		"reason": "refused", "attempts": 1.0, "parked_at": "2026-03-01T12:00:00Z", "dropped_at": nil, "dropped_by": nil,
		"drop_reason": nil,
	}
	const path = "/v1/deadletters/audit/1:4"
	for _, q := range []string{"", "?projection=audit"} {
		require.Equal(t, map[string]any{"deadletters": []any{row}}, s.ok(http.StatusOK, "GET", "/v1/deadletters"+q,
			nil))
	}
	require.Equal(t, row, s.ok(http.StatusOK, "GET", path, nil))
	row["attempts"] = 2.0
	require.Equal(t, row, s.ok(http.StatusOK, "POST", path+"/retry", nil), "refused again")
	row["state"], row["dropped_at"] = "dropped", "2026-03-01T13:00:00Z"
	row["dropped_by"], row["drop_reason"] = "ada", "a lie"
	require.Equal(t, row, s.ok(http.StatusOK, "POST", path+"/drop", map[string]any{"reason": "a lie",
		"dropped_by": "ada"}))
	box.stubborn = false
	require.Equal(t, "applied", s.ok(http.StatusOK, "POST", path+"/retry", nil)["state"])

	requireProblem(t, s.do("POST", path+"/drop", map[string]any{"dropped_by": "ada"}), http.StatusUnprocessableEntity,
		"invalid_argument", "reason")
	for _, other := range []string{"audit/1:5", "audit/x", "recent/1:4"} {
		requireProblem(t, s.do("POST", "/v1/deadletters/"+other+"/retry", nil), http.StatusNotFound, "not_found")
		requireProblem(t, s.do("POST", "/v1/deadletters/"+other+"/drop", map[string]any{"reason": "r"}),
			http.StatusNotFound, "not_found")
		requireProblem(t, s.do("GET", "/v1/deadletters/"+other, nil), http.StatusNotFound, "not_found")
	}
	requireProblem(t, s.do("GET", "/v1/deadletters?projection=recent", nil), http.StatusNotFound, "not_found")
	box.err = errors.New("the store is away")
	requireProblem(t, s.do("GET", "/v1/deadletters", nil), http.StatusServiceUnavailable, "projection_unavailable")
	requireProblem(t, s.do("POST", path+"/retry", nil), http.StatusServiceUnavailable, "projection_unavailable")
	box.err = jetlog.ErrUnavailable
	requireProblem(t, s.do("POST", path+"/retry", nil), http.StatusServiceUnavailable, "log_unavailable")
}
