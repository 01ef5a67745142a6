package events_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

//conformance:h31
func TestKeyedHashes(t *testing.T) {
	t.Parallel()
	key := []byte("a key")
	one := events.HashIP(key, "192.0.2.7")
	require.Regexp(t, `^[0-9a-f]{16}$`, one)
	require.Equal(t, one, events.HashIP(key, " 192.0.2.7 "))
	require.Equal(t, one, events.HashIP(key, "::ffff:192.0.2.7"))
	require.NotEqual(t, one, events.HashIP(key, "192.0.2.8"))
	require.NotEqual(t, one, events.HashIP([]byte("another"), "192.0.2.7"))
	require.Equal(t, events.HashIP(key, "2001:db8::1"), events.HashIP(key, "2001:db8:0:0:ffff::2"))
	require.NotEqual(t, events.HashIP(key, "2001:db8::1"), events.HashIP(key, "2001:db8:0:1::1"))
	require.Empty(t, events.HashIP(key, ""))
	require.NotEqual(t, events.HashUserAgent(key, "x"), events.KeyedHash(key, "ip", "x"))
	require.Equal(t, events.HashUserAgent(key, "x"), events.HashUserAgent(key, "x "))
}
