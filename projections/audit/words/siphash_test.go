package words

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The values are those of the authors' reference implementation: the text of n bytes is 0, 1, 2 and so on.
func TestSipHash(t *testing.T) {
	t.Parallel()
	var key [16]byte
	var text []byte
	for i := range key {
		key[i] = byte(i)
	}
	want := map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462,
		15: 0xa129ca6149be45e5,
	}
	for n := range 16 {
		if h, ok := want[n]; ok {
			require.Equal(t, h, sipHash(&key, text), n)
		}
		text = append(text, byte(n))
	}
}
