package eraser_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

//conformance:h54 h68 f27
func TestWhatIsTooOldGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("anonymous", "r1", "old")
	gone := w.turn("redacted", "r1", "old")
	w.turn("redacted", "r2", "old")
	w.redact("redacted", gone)
	w.turn("redacted", "r3", "old")
	w.turn("linked", "r1", "old")
	w.link("linked", "alice")
	w.turn("active", "r1", "old")
	// The log's own clock says when that was.
	cut := time.Now().Add(10 * time.Millisecond)
	hang.Until(t, func() bool { return time.Now().After(cut) })
	w.turn("active", "r2", "new")
	w.turn("linked", "r2", "new")

	now := cut
	var forgotten []string
	cfg := eraser.RetentionConfig{
		Rules: rules, Anonymous: 30 * 24 * time.Hour, Linked: 365 * 24 * time.Hour,
		Now: func() time.Time { return now },
		Redact: func(_ context.Context, session string, turn uuid.UUID) error {
			_, err := w.history.RedactTurn(t.Context(), session, conversation.Redact{TurnID: turn, Reason: "retention"})
			return err
		},
		Forget: func(ctx context.Context, session string, _ int, _ []uint64, purge func(context.Context) error) error {
			forgotten = append(forgotten, session)
			return purge(ctx)
		},
	}
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, cfg)
	sweep := func(dry bool) services.Swept {
		do := r.Sweep
		if dry {
			do = r.DrySweep
		}
		return must.Get(do(t.Context()))(t)
	}
	require.Zero(t, sweep(false), "nothing is old")

	now = cut.Add(cfg.Anonymous)
	all := append(w.types("anonymous"), w.types("redacted")...)
	would := services.Swept{Sessions: 2, Events: len(all) - 1}
	require.Equal(t, would, sweep(true))
	require.Equal(t, all, append(w.types("anonymous"), w.types("redacted")...), "a dry run changes nothing")
	require.Equal(t, would, sweep(false))
	require.Zero(t, sweep(false), "it goes on where it was")
	require.Empty(t, w.types("anonymous"))
	require.Equal(t, []string{events.TypeTurnRedacted}, w.types("redacted"), "a marker stays")
	require.Len(t, w.types("active"), 4)
	require.Len(t, w.types("linked"), 5)
	require.Equal(t, []string{"anonymous", "redacted"}, forgotten)

	require.Equal(t, conversation.Redacted, w.start("redacted", "r1", "again").Status,
		"a late retry brings no redacted turn back")
	require.False(t, w.start("redacted", "r9", "new").Duplicate)
	w.link("anonymous", "bob")

	now = cut.Add(cfg.Linked)
	require.Equal(t, 1, sweep(true).Turns)
	require.Equal(t, 1, sweep(false).Turns)
	state := w.state("linked")
	require.Equal(t, []conversation.Status{conversation.Redacted, conversation.Finalized},
		[]conversation.Status{state.Turns[0].Status, state.Turns[1].Status})
}

// A session that has left the log is not found again, so the view's rows of it go first.
func TestWhatAViewCanNotForgetYetStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r1", "old")
	w.turn("linked", "r1", "old")
	w.link("linked", "alice")
	away := errors.New("away")
	var redacted []string
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
		Rules: rules, Anonymous: time.Hour, Linked: time.Hour,
		Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
		Redact: func(_ context.Context, session string, _ uuid.UUID) error {
			redacted = append(redacted, session)
			return nil
		},
		Forget: func(ctx context.Context, _ string, _ int, _ []uint64, purge func(context.Context) error) error {
			if away != nil {
				return away
			}
			return purge(ctx)
		},
	})
	must.Fail(r.Sweep(t.Context()))(t, away)
	require.Len(t, w.types("s"), 2)
	require.Equal(t, []string{"linked"}, redacted, "what is linked does not wait for the view")
	away = nil
	got := must.Get(r.Sweep(t.Context()))(t)
	require.Equal(t, services.Swept{Sessions: 1, Events: 2}, got)
	require.Empty(t, w.types("s"))
}

// A foreign redaction that lacks the tombstones is none without the turn's events, and a
// late retry would bring the text back.
func TestRetentionKeepsWhatARedactionRestsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.turn("s", "r1", "old")
	gone := w.turn("s", "r2", "old")
	w.turn("s", "r3", "old")
	w.publish(&events.TurnRedacted{TurnID: gone, SessionID: "s"}, "")
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
		Rules: rules, Anonymous: time.Hour, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
	})
	got := must.Get(r.Sweep(t.Context()))(t)
	require.Equal(t, services.Swept{Sessions: 1, Events: 4}, got)
	require.Equal(t, []string{events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted}, w.types("s"))
	w.publish(&events.TurnStarted{TurnID: gone, SessionID: "s", RequestID: "r2",
		Question: events.Question{QuestionNeutral: "again"}}, "late")
	require.NotZero(t, w.state("s").Turn(gone).Redacted)
}

// What a view is to forget is what leaves the log, also where its type says that it would
// stay: a foreign redaction of a turn that nobody knows is none.
func TestAViewForgetsWhatRetentionTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	first := w.publish(&events.TurnRedacted{TurnID: uuid.New(), SessionID: "s"}, "")
	w.redact("s", w.turn("s", "r1", "old"))
	var forgotten []uint64
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
		Rules: rules, Anonymous: time.Hour, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
		Forget: func(ctx context.Context, _ string, _ int, gone []uint64, purge func(context.Context) error) error {
			forgotten = gone
			return purge(ctx)
		},
	})
	must.Get(r.Sweep(t.Context()))(t)
	require.Equal(t, []string{events.TypeTurnRedacted}, w.types("s"))
	require.Equal(t, []uint64{first.Seq, first.Seq + 1, first.Seq + 2}, forgotten)
}

// A view may be behind in one partition and not in another.
func TestAPartitionThatWaitsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	sessions := map[int]string{}
	for i := 0; len(sessions) < 2; i++ {
		id := fmt.Sprint("s", i)
		if k := w.log.Partition(id); sessions[k] == "" {
			sessions[k] = id
			w.turn(id, "r1", "old")
		}
	}
	behind := errors.New("behind")
	r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
		Rules: rules, Anonymous: time.Hour, Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
		Forget: func(ctx context.Context, _ string, partition int, _ []uint64,
			purge func(context.Context) error) error {
			if partition == 0 {
				return behind
			}
			return purge(ctx)
		},
	})
	must.Fail(r.Sweep(t.Context()))(t, behind)
	require.Len(t, w.types(sessions[0]), 2)
	require.Empty(t, w.types(sessions[1]))
}
