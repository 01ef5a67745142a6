// Package reread keeps a value that is made from files, and makes a new one when the files change.
package reread

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/events/pause"
)

// Files holds a value that is made from the contents of files. Only one goroutine at a time may call Open or Run; Value
// is safe for concurrent use.
type Files[T any] struct {
	Paths []string
	// Every is the pause between two looks at the files; 1 s by default.
	Every time.Duration
	// Read reads a file, as os.ReadFile does by default. Make makes the value from the files' contents.
	Read func(path string) ([]byte, error)
	Make func(raw [][]byte) (T, error)
	// Looked is called before each look, Changed with a new value, and Failed with an error that differs from the
	// error before it. Looked may be nil.
	Looked  func(T)
	Changed func(T)
	Failed  func(error)

	value atomic.Pointer[T]
	raw   [][]byte // what was read last
}

// Value returns the latest value.
func (f *Files[T]) Value() T { return *f.value.Load() }

// Open makes the value for the first time.
func (f *Files[T]) Open() error {
	if f.Read == nil {
		f.Read = os.ReadFile
	}
	_, err := f.reload()
	return err
}

// reload reads the files and reports whether they have changed.
func (f *Files[T]) reload() (bool, error) {
	raw := make([][]byte, len(f.Paths))
	for i, path := range f.Paths {
		var err error
		if raw[i], err = f.Read(path); err != nil {
			return false, err
		}
	}
	if slices.EqualFunc(raw, f.raw, bytes.Equal) {
		return false, nil
	}
	made, err := f.Make(raw)
	if err != nil {
		return false, err
	}
	f.raw = raw
	f.value.Store(&made)
	return true, nil
}

// Run looks at the files until ctx ends, and then returns nil. While no value can be made from the files, Value keeps
// returning the last one.
func (f *Files[T]) Run(ctx context.Context) error {
	lastWarning := ""
	for {
		if f.Looked != nil {
			f.Looked(f.Value())
		}
		if !pause.For(ctx, cmp.Or(f.Every, time.Second)) {
			return nil
		}
		changed, err := f.reload()
		switch {
		case err == nil:
			lastWarning = ""
		case err.Error() != lastWarning:
			lastWarning = err.Error()
			f.Failed(err)
		}
		if changed {
			f.Changed(f.Value())
		}
	}
}
