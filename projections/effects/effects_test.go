package effects_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/effects"
)

type nothing struct{}

func (nothing) Name() string                                       { return "memory" }
func (nothing) Handle(context.Context, []projections.Judged) error { return nil }

// Versions before the desk kept dead letters in the effect's bucket. A runner that claims the partition moves them to
// the desk.
func TestFormerDeadLettersAreCarriedOver(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	js := must.Get(jetstream.New(natstest.Connect(t, s)))(t)
	bucket := must.Get(js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "turnledger-memory"}))(t)
	want := projections.DeadLetter{
		Projection: "memory", Position: events.Position{Partition: 1, Seq: 7}, EventID: "e", Type: "t", SessionID: "s",
		Reason: "a test", Attempts: 3,
		ParkedAt: time.Unix(7, 0).UTC(),
	}
	for _, key := range []string{"letter.1.7", "letter.0.7", "checkpoint.1"} {
		_, err := bucket.PutString(t.Context(), key, rueidis.JSON(want))
		require.NoError(t, err)
	}
	e := effects.New(js, nothing{}, effects.Config{Log: natstest.LogOn(t, s, 2)})
	var got []projections.DeadLetter
	keep := func(_ context.Context, l projections.DeadLetter) error {
		got = append(got, l)
		return nil
	}
	for range 2 {
		require.NoError(t, e.Carry(t.Context(), 1, keep))
		require.Equal(t, []projections.DeadLetter{want}, got, "once")
	}
}

// A rebuild takes what is Rebuildable only, so that it never does again what an effect did outside.
func TestAnEffectIsNoViewThatCanBeRebuilt(t *testing.T) {
	t.Parallel()
	_, can := any((*effects.Effect)(nil)).(projections.Rebuildable)
	require.False(t, can)
	_, isView := any((*effects.Effect)(nil)).(projections.View)
	require.False(t, isView)
	_, fed := any((*effects.Effect)(nil)).(projections.Projection)
	require.True(t, fed)
}
