package room_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/room"
)

// What a reader holds counts from its floor on, however it came to hold it, and all of it goes when the reader leaves.
func TestARoomCountsWhatIsBeyondTheFloors(t *testing.T) {
	t.Parallel()
	r := room.New(10 * room.Floor)
	a, b := r.Tally(), r.Tally()
	a.Grow(room.Floor)
	require.Zero(t, r.Used())
	a.Grow(1)
	require.Equal(t, 1, r.Used())
	b.Grow(3 * room.Floor)
	require.Equal(t, 2*room.Floor+1, r.Used())
	a.Grow(-2)
	require.Equal(t, 2*room.Floor, r.Used())
	a.Leave()
	b.Leave()
	require.Zero(t, r.Used())
	require.Equal(t, a.Left(), r.Tally().Left(), "who has left may come again")
}

// Beyond its floor a reader may hold half of what is free; of a room that is overfull, no more than its floor.
func TestAReaderMayHoldHalfOfWhatIsFree(t *testing.T) {
	t.Parallel()
	r := room.New(8 * room.Floor)
	a, b := r.Tally(), r.Tally()
	require.Equal(t, 5*room.Floor, a.Left())
	a.Grow(5 * room.Floor)
	require.Equal(t, 3*room.Floor, b.Left())
	require.Equal(t, -2*room.Floor, a.Left())
	a.Grow(10 * room.Floor)
	require.Equal(t, room.Floor, b.Left())
	require.Equal(t, room.Floor, new(room.Room).Tally().Left(), "floors alone")
}

// A reader takes what it asks for, as far as it may hold it. It takes nothing in place of less than a floor, unless it
// needs it.
func TestAReaderTakesAFloorOrNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holds, most int
		needed      bool
		takes       int
	}{
		"all that it may hold": {most: 100 * room.Floor, takes: 5 * room.Floor},
		"all that it wants":    {most: 2 * room.Floor, takes: 2 * room.Floor},
		"exactly a floor":      {holds: 2 * room.Floor, most: room.Floor, takes: room.Floor},
		"less than a floor":    {holds: 2 * room.Floor, most: room.Floor - 1},
		"no room":              {holds: 9 * room.Floor, most: room.Floor},
		"no room, and needed":  {holds: 9 * room.Floor, most: 100 * room.Floor, needed: true, takes: room.Floor},
		"little, and needed":   {most: 1, needed: true, takes: room.Floor},
		"much, and needed":     {most: 100 * room.Floor, needed: true, takes: 5 * room.Floor},
	} {
		r := room.New(8 * room.Floor)
		tally := r.Tally()
		tally.Grow(c.holds)
		require.Equal(t, c.takes, tally.Take(c.most, c.needed), name)
		require.Equal(t, max(0, c.holds+c.takes-room.Floor), r.Used(), name)
	}
}
