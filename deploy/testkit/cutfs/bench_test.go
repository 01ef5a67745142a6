//go:build linux

package cutfs_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
)

func BenchmarkWriteAndSync(b *testing.B) {
	f := mount(b, cutfs.Options{}).open("f", 0)
	data := make([]byte, 512)
	for b.Loop() {
		if _, err := f.WriteAt(data, 0); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}
