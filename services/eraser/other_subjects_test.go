package eraser_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// A raw publisher may put the text of a turn on any subject of the log.
func TestWhatComesLateOnAnotherSubjectIsErased(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	w := newWorldOn(t, natstest.LogOn(t, s, 1), filepath.Join(s.GateDir(), "jetstream"))
	var forgotten sync.Map
	var away atomic.Bool
	away.Store(true)
	forget := func(ctx context.Context, at events.Position) error {
		if away.Load() {
			return errors.New("the view is away")
		}
		_, found, err := w.log.At(ctx, at)
		assert.NoError(t, err)
		assert.False(t, found, "who reads the log would write the row again")
		forgotten.Store(at, true)
		return nil
	}
	stop := w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000, Forget: forget})
	gone := w.turn("redacted", "r1", "text")
	w.redact("redacted", gone)
	w.turn("closed", "r1", "text")
	must.Get(w.history.EraseSession(t.Context(), "closed", services.Erasure{}))(t)

	nc := natstest.Connect(t, s)
	publish := func(subject, session, text string) {
		_, err := nc.Request(subject, fmt.Appendf(nil, `{"session_id":%q,"turn_id":%q,"answer_neutral":%q}`, session, gone, text), hang.Limit)
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
	w.gone("SECRET")
	require.Len(t, w.types("other"), 4, "what names nothing that is gone stays")
	stop()
	away.Store(false)
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000, Forget: forget})
	hang.Until(t, func() bool {
		n := 0
		forgotten.Range(func(any, any) bool { n++; return true })
		return n == 3
	}, "an eraser that comes later tells the view")
}
