package eraser_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// A mirror keeps what the log has erased, also where an eraser dies between the two.
func TestMirrorsAreErasedToo(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	w := newWorldOn(t, natstest.LogOn(t, s, 1), filepath.Join(s.GateDir(), "jetstream"))
	js, err := jetstream.New(natstest.Connect(t, s))
	require.NoError(t, err)
	var mirrors []jetstream.Stream
	for _, of := range []string{events.StreamName(0), "COPY-" + events.StreamName(0)} {
		mirror, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY-" + of,
			Mirror: &jetstream.StreamSource{Name: of}})
		require.NoError(t, err)
		mirrors = append(mirrors, mirror)
	}

	redacted := w.turn("redacted", "r1", "SECRET")
	w.redact("redacted", redacted)
	w.turn("redacted", "r2", "KEPT")
	w.turn("closed", "r1", "SECRET")
	_, err = w.history.EraseSession(t.Context(), "closed", services.Erasure{})
	require.NoError(t, err)
	w.publish(&events.TurnFinalized{TurnID: redacted, SessionID: "redacted",
		Answer: events.Answer{AnswerNeutral: "SECRET again"}}, "late")
	w.turn("other", "r1", "KEPT")
	first, err := w.log.Head(t.Context(), 0)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assertT) {
		for _, mirror := range mirrors {
			info, err := mirror.Info(t.Context())
			requireEqual(c, nil, err)
			assert.GreaterOrEqual(c, info.State.LastSeq, first.Seq)
		}
	}, patience, lookEvery)
	// An eraser died after it had taken this one out of the log.
	_, err = overwrite.On(w.log).Erase(t.Context(), events.Position{Seq: 2})
	require.NoError(t, err)

	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	require.EventuallyWithT(t, func(c *assertT) { assert.Empty(c, holding(t, w.dir, "SECRET")) }, patience, lookEvery)
	require.Len(t, holding(t, w.dir, "KEPT"), 3)
}

// lagging is a log whose mirrors are behind.
type lagging struct{ Log }

func (lagging) Mirrors(context.Context, string, events.Position) ([]string, error) {
	return nil, jetlog.ErrUnavailable
}

// A late event that leaves the log before a mirror has come to it holds up nothing, and
// leaves the mirror when that can be told, whoever erases then.
func TestAMirrorThatIsBehindLosesWhatCameLate(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	w := newWorldOn(t, natstest.LogOn(t, s, 1), filepath.Join(s.GateDir(), "jetstream"))
	js, err := jetstream.New(natstest.Connect(t, s))
	require.NoError(t, err)
	mirror, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY",
		Mirror: &jetstream.StreamSource{Name: events.StreamName(0)}})
	require.NoError(t, err)
	gone := w.turn("redacted", "r1", "text")
	progress := eraser.New(on(inOnePiece(w.log)), w.notes, eraser.Config{Rules: rules})
	done := func(seq uint64) {
		require.EventuallyWithT(t, func(c *assertT) {
			at, err := progress.Resume(t.Context(), 0)
			requireEqual(c, nil, err)
			assert.GreaterOrEqual(c, at.Seq, seq)
		}, patience, lookEvery)
	}
	redaction := w.redact("redacted", gone)
	stop := w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	done(redaction.Redacted)
	stop()

	late := w.publish(&events.TurnFinalized{TurnID: gone, SessionID: "redacted",
		Answer: events.Answer{AnswerNeutral: "SECRET"}}, "late")
	require.EventuallyWithT(t, func(c *assertT) {
		info, err := mirror.Info(t.Context())
		requireEqual(c, nil, err)
		assert.GreaterOrEqual(c, info.State.LastSeq, late.Seq)
	}, patience, lookEvery)
	stop = w.erase(lagging{inOnePiece(w.log)}, eraser.Config{Rate: 1000})
	w.left("redacted", events.TypeTurnRedacted)
	done(late.Seq)
	stop()
	require.Len(t, holding(t, w.dir, "SECRET"), 1, "the mirror's")
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	require.EventuallyWithT(t, func(c *assertT) { assert.Empty(c, holding(t, w.dir, "SECRET")) }, patience, lookEvery)
}
