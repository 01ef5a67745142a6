package events_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

func TestPosition(t *testing.T) {
	t.Parallel()
	t.Run("reads what it wrote", func(t *testing.T) {
		t.Parallel()
		for _, p := range []events.Position{{}, {Seq: 42}, {Partition: 255, Seq: 1<<64 - 1}} {
			back := must.Get(events.ParsePosition(p.String()))(t)
			require.Equal(t, p, back)
			raw := must.Get(json.Marshal(p))(t)
			require.Equal(t, `"`+p.String()+`"`, string(raw))
			var over events.Position
			require.NoError(t, json.Unmarshal(raw, &over))
			require.Equal(t, p, over)
		}
	})
	for _, s := range []string{"", ":", "0", "0:", ":1", "0:1:2", "-1:2", "+1:2", "0:-2", "0x1:2", " 0:1", "256:1",
		"0:18446744073709551616", "99999999999999999999:1", "٠:١"} {
		t.Run("refuses "+s, func(t *testing.T) {
			t.Parallel()
			must.Fail(events.ParsePosition(s))(t, events.ErrPosition)
		})
	}
	t.Run("a JSON text that is none is refused", func(t *testing.T) {
		t.Parallel()
		var p events.Position
		require.ErrorIs(t, json.Unmarshal([]byte(`"42"`), &p), events.ErrPosition)
	})
}

func TestParsePositions(t *testing.T) {
	t.Parallel()
	t.Run("reads one position a partition", func(t *testing.T) {
		t.Parallel()
		got := must.Get(events.ParsePositions("0:42, 1:17"))(t)
		require.Equal(t, []events.Position{{Seq: 42}, {Partition: 1, Seq: 17}}, got)
	})
	for _, s := range []string{"", "0:1,", "0:1,0:2", "0:1;1:2"} {
		t.Run("refuses "+s, func(t *testing.T) {
			t.Parallel()
			must.Fail(events.ParsePositions(s))(t, events.ErrPosition)
		})
	}
}
