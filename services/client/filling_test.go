package client

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Under load some follower always lacks what is on its way: each is filled once it was seen
// with all, and plan does not call it filling.
func TestFollowersUnderLoadAreFilled(t *testing.T) {
	t.Parallel()
	stream := func(a, b StreamFollower) []Stream {
		a.Server, b.Server = "n2", "n3"
		return []Stream{{Name: "TURNS-0", Replicas: 3, Followers: []StreamFollower{a, b}}}
	}
	there, near, far := StreamFollower{Current: true}, StreamFollower{Behind: 2},
		StreamFollower{Behind: 5000}
	seen := filling{}
	require.EqualValues(t, 2, seen.lackingIn([]Stream{{Name: "TURNS-0", Replicas: 3}}),
		"followers that are not there yet")
	require.EqualValues(t, 5001, seen.lackingIn(stream(StreamFollower{}, far)), "and one that nothing is known of")
	require.EqualValues(t, 2, seen.lackingIn(stream(there, near)))
	require.Zero(t, seen.lackingIn(stream(near, there)))
	for want, s := range map[string]Stream{
		"2":                   stream(there, near)[0],
		"5000, filling":       stream(there, far)[0],
		"0, filling":          {Replicas: 3},
		"2, n3 is offline":    stream(there, StreamFollower{Behind: 2, Offline: true})[0],
		"5000, n3 is offline": stream(there, StreamFollower{Behind: 5000, Offline: true})[0],
		"0":                   {Replicas: 1, Followers: stream(there, far)[0].Followers},
	} {
		require.Equal(t, want, s.Behind())
	}
}
