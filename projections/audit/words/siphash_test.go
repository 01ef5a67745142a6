package words

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A term is the lower half of SipHash-2-4 with the key's first 16 bytes. The values are those of the authors' reference
// implementation: the text of n bytes is 0, 1, 2 and so on. Tables hold terms, so that they may not change.
func TestTermsAreSipHash(t *testing.T) {
	t.Parallel()
	var key Key
	var text []byte
	for i := range 16 {
		key[i] = byte(i)
	}
	want := map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462,
		15: 0xa129ca6149be45e5,
	}
	for n := range 16 {
		if h, ok := want[n]; ok {
			require.Equal(t, uint32(h), uint32(key.termOf(text)), n)
		}
		text = append(text, byte(n))
	}
}
