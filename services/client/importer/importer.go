package importer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/services/client"
)

// Config of an import. Before the server has answered once, calls go by First, which finds out quickly that there is no
// server; from then on by Later, which outlasts a restart.
type Config struct {
	First, Later client.SessionStore
	// Parallel is how many conversations are recorded at once.
	Parallel int
	// Explain puts an error of a call into words for whoever runs the import.
	Explain func(ctx context.Context, err error) error
	// Passed is told of the bytes that are done, and Failed of a line that was not imported whole.
	Passed func(bytes int64)
	Failed func(where string, err error)
}

// Summary is what an import did.
type Summary struct {
	Conversations int64 `json:"conversations"`
	Turns         int64 `json:"turns"`
	Recorded      int64 `json:"turns_recorded"`
	There         int64 `json:"turns_there"`
	Failed        int64 `json:"lines_failed"`
}

// Import records the conversations of files; "-" is standard input. An error says that it ended before it was through.
func Import(ctx context.Context, files []string, cfg Config) (Summary, error) {
	im := &importer{Config: cfg, seen: map[string][32]byte{}}
	lines := make(chan line, cfg.Parallel)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		// A read of a terminal can't be broken off: it is left when ctx ends.
		read := make(chan error, 1)
		go func() { read <- im.read(ctx, files, lines) }()
		select {
		case err := <-read:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	for range cfg.Parallel {
		g.Go(func() error {
			for {
				select {
				case l, more := <-lines:
					if !more {
						return nil
					}
					if err := im.line(ctx, l); err != nil {
						return err
					}
					cfg.Passed(l.size)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}
	err := g.Wait()
	return im.done, err
}

type importer struct {
	Config
	seen     map[string][32]byte // the sum of each conversation, by its id
	answered atomic.Bool

	mu   sync.Mutex
	done Summary
}

func (im *importer) count(add func(*Summary)) {
	im.mu.Lock()
	defer im.mu.Unlock()
	add(&im.done)
}

// line is one conversation on its way in, or what is wrong with it.
type line struct {
	where   string
	size    int64
	session string
	turns   []Turn
	err     error
}

// read sends the lines that are not empty, in order, a conversation once.
func (im *importer) read(ctx context.Context, files []string, out chan<- line) error {
	defer close(out)
	for _, name := range files {
		f := os.Stdin
		if name != "-" {
			var err error
			if f, err = os.Open(name); err != nil { //nolint:gosec // the file that the user named
				return err
			}
		}
		err := im.readFile(ctx, name, f, out)
		if name != "-" {
			_ = f.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readFile takes a last line without a line feed for one, too.
func (im *importer) readFile(ctx context.Context, name string, f io.Reader, out chan<- line) error {
	r := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		text, err := r.ReadBytes('\n')
		l := line{where: fmt.Sprintf("%s:%d", name, n), size: int64(len(text))}
		if n == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			l.session, l.turns, l.err = Parse(text)
			if l.err == nil {
				l.err = im.once(l.session, text)
			}
			select {
			case out <- l:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
}

var errSameLine = errors.New("the same line again")

// once refuses a second conversation under the same id: its turns would be taken
// for those of the first.
func (im *importer) once(session string, text []byte) error {
	sum := sha256.Sum256(text)
	before, ok := im.seen[session]
	switch {
	case !ok:
		im.seen[session] = sum
		return nil
	case before == sum:
		return errSameLine
	default:
		return errors.New("another conversation with this conversation_id stands before it: give it an id of its own")
	}
}

// line records one conversation. It reports faults of the line, and returns an error only if the run must end.
func (im *importer) line(ctx context.Context, l line) error {
	err := l.err
	if errors.Is(err, errSameLine) {
		return nil
	}
	if err == nil {
		im.count(func(s *Summary) { s.Conversations++; s.Turns += int64(len(l.turns)) })
		err = im.record(ctx, l.turns)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, lost := errors.AsType[*unreachable](err); lost {
		return err
	}
	if err != nil {
		im.count(func(s *Summary) { s.Failed++ })
		im.Failed(l.where, err)
	}
	return nil
}
