package wire_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// A body takes as much memory as its length says, and no text is lost whether the length is known or not.
func TestABodyIsReadWhole(t *testing.T) {
	t.Parallel()
	const text, most = "a turn of some length", 30
	read := func(body string, length int64) ([]byte, error) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", io.NopCloser(strings.NewReader(body)))
		r.ContentLength = length
		return wire.ReadBody(r, most)
	}
	got, err := read(text, int64(len(text)))
	require.NoError(t, err)
	require.Equal(t, text, string(got))
	require.Equal(t, len(text), cap(got), "no room to spare")
	got, err = read(text, -1)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
	got, err = read("", 0)
	require.NoError(t, err)
	require.Empty(t, got)

	_, err = read(text, int64(len(text))+1)
	require.ErrorIs(t, err, wire.ErrBody, "the client left before the end")
	var large *wire.TooLarge
	_, err = read(strings.Repeat("x", most+1), most+1)
	require.ErrorAs(t, err, &large)
	_, err = read(strings.Repeat("x", most+1), -1)
	require.ErrorAs(t, err, &large)
}
