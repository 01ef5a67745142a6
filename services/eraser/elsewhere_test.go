package eraser_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/history"
)

// A raw publisher may put the text of a turn on any subject of the log.
func TestWhatComesLateOnAnotherSubjectIsErased(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	w := newWorldOn(t, natstest.LogOn(t, s, 1), filepath.Join(s.GateDir(), "jetstream"))
	var forgotten atomic.Int64
	audit := &place{name: "audit"}
	w.erase(w.log, eraser.Config{Rate: 1000, Places: []eraser.Place{audit}, Forget: func(_ context.Context, place string, _ events.Position) error {
		assert.Equal(t, "audit", place)
		forgotten.Add(1)
		return nil
	}})
	gone := w.turn("redacted", "r1", "text")
	w.redact("redacted", gone)
	w.turn("closed", "r1", "text")
	_, err := w.history.EraseSession(t.Context(), "closed", history.Erasure{})
	require.NoError(t, err)

	nc := natstest.Connect(t, s)
	publish := func(subject, session, text string) {
		_, err := nc.Request(subject, fmt.Appendf(nil, `{"session_id":%q,"turn_id":%q,"answer_neutral":%q}`, session, gone, text), patience)
		require.NoError(t, err)
	}
	other, token := events.SessionSubject("other"), events.SessionSubject("redacted")
	wrong := "turns.0" + token[strings.LastIndex(token, "."):]
	require.NotEqual(t, token, wrong)
	require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: other, Data: []byte("no JSON")}))
	publish(other, "redacted", "SECRET")
	publish(wrong, "redacted", "SECRET")
	publish(other, "closed", "SECRET")
	publish(other, "alive", "KEPT")
	publish(other, "", "KEPT")
	publish(other, strings.Repeat("long", 100), "KEPT")
	require.EventuallyWithT(t, func(c *assertT) { assert.Empty(c, holding(t, w.dir, "SECRET")) }, patience, lookEvery)
	require.Len(t, w.types("other"), 4, "what names nothing that is gone stays")
	require.Zero(t, forgotten.Load(), "the view may write the row yet")
	audit.follow()
	require.Eventually(t, func() bool { return forgotten.Load() == 3 }, patience, lookEvery)
}
