// Package liveheap measures the heap of a test's process without that of the NATS server in it.
package liveheap

import (
	"math"
	"runtime"
	"strings"
	"testing"
)

// rate is how many bytes are allocated between two that the heap's profile notes.
const rate = 512

// Note makes Bytes precise for what is allocated until the test ends. The test runs beside no other.
func Note(t testing.TB) {
	t.Helper()
	before := runtime.MemProfileRate
	t.Cleanup(func() { runtime.MemProfileRate = before })
	runtime.MemProfileRate = rate
}

// Bytes returns what is live beside what the NATS server in this process holds, whose caches come and go. The test has
// called Note.
func Bytes() (bytes float64) {
	runtime.GC()
	runtime.GC()
	var records []runtime.MemProfileRecord
	for n, whole := 0, false; !whole; {
		records = make([]runtime.MemProfileRecord, n+1000)
		if n, whole = runtime.MemProfile(records, false); whole {
			records = records[:n]
		}
	}
	for i := range records {
		size, objects := float64(records[i].InUseBytes()), float64(records[i].InUseObjects())
		if objects > 0 && !ofServer(records[i].Stack()) {
			bytes += size / (1 - math.Exp(-size/objects/rate))
		}
	}
	return bytes
}

func ofServer(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "/nats-server/") {
			return true
		}
		if !more {
			return false
		}
	}
}
