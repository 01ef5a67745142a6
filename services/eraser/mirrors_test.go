package eraser_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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
	js := must.Get(jetstream.New(natstest.Connect(t, s)))(t)
	var mirrors []jetstream.Stream
	for _, of := range []string{events.StreamName(0), "COPY-" + events.StreamName(0)} {
		mirror := must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY-" + of,
			Mirror: &jetstream.StreamSource{Name: of}}))(t)
		mirrors = append(mirrors, mirror)
	}

	redacted := w.turn("redacted", "r1", "SECRET")
	w.redact("redacted", redacted)
	w.turn("redacted", "r2", "KEPT")
	w.turn("closed", "r1", "SECRET")
	must.Get(w.history.EraseSession(t.Context(), "closed", services.Erasure{}))(t)
	w.publish(&events.TurnFinalized{TurnID: redacted, SessionID: "redacted",
		Answer: events.Answer{AnswerNeutral: "SECRET again"}}, "late")
	w.turn("other", "r1", "KEPT")
	first := must.Get(w.log.Head(t.Context(), 0))(t)
	for _, mirror := range mirrors {
		mirrored(t, mirror, first)
	}
	// An eraser died after it had taken this one out of the log.
	must.Get(overwrite.On(w.log).Erase(t.Context(), events.Position{Seq: 2}))(t)

	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	w.gone("SECRET")
	require.Len(t, holding(t, w.dir, "KEPT"), 3)
}

// mirrored waits until a mirror has come to a position.
func mirrored(t *testing.T, mirror jetstream.Stream, at events.Position) {
	t.Helper()
	hang.Until(t, func() bool {
		info, err := mirror.Info(t.Context()) // a slow server is asked again
		return err == nil && info.State.LastSeq >= at.Seq
	})
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
	js := must.Get(jetstream.New(natstest.Connect(t, s)))(t)
	mirror := must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY",
		Mirror: &jetstream.StreamSource{Name: events.StreamName(0)}}))(t)
	gone := w.turn("redacted", "r1", "text")
	progress := eraser.New(on(inOnePiece(w.log)), w.notes, eraser.Config{Rules: rules})
	done := func(seq uint64) {
		hang.Until(t, func() bool {
			at, err := progress.Resume(t.Context(), 0)
			return err == nil && at.Seq >= seq
		})
	}
	redaction := w.redact("redacted", gone)
	stop := w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	done(redaction.Redacted)
	stop()

	late := w.publish(&events.TurnFinalized{TurnID: gone, SessionID: "redacted",
		Answer: events.Answer{AnswerNeutral: "SECRET"}}, "late")
	mirrored(t, mirror, late)
	stop = w.erase(lagging{inOnePiece(w.log)}, eraser.Config{Rate: 1000})
	w.left("redacted", events.TypeTurnRedacted)
	done(late.Seq)
	stop()
	require.Len(t, holding(t, w.dir, "SECRET"), 1, "the mirror's")
	w.erase(inOnePiece(w.log), eraser.Config{Rate: 1000})
	w.gone("SECRET")
}
