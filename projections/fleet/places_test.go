package fleet_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/projections/fleet"
)

func TestPlacesAreReachedWithWhatTheyApplied(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	at := question(t, log)
	v := newKept()
	f := newFleet(log)
	add(t, f, fleet.Entry{View: v, Reads: true})
	f.AddWorker(fleet.Worker{Name: "beside", Applied: func(context.Context, int) (events.Position, error) {
		return at, nil
	}})
	places := f.Places()
	require.Len(t, places, 2)
	require.Equal(t, "kept", places[0].Name())
	require.Equal(t, "beside", places[1].Name())
	reached := func(i int) bool {
		return must.Get(places[i].Reached(t.Context(), at))(t)
	}
	require.False(t, reached(0))
	require.True(t, reached(1))
	v.set(errors.New("no answer"))
	require.EqualError(t, must.Err(places[0].Reached(t.Context(), at)), "no answer")
	v.set(nil)
	must.Get(overwrite.On(log).Erase(t.Context(), at))(t)
	require.True(t, reached(0), "what it has not applied will never come")
}
