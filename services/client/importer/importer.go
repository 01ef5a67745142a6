package importer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/services/client"
)

// Config of an import. Calls use First until the server has answered once: First finds out quickly that there is no
// server. Then they use Later, which outlasts a server's restart.
type Config struct {
	First, Later Store
	// From says what the files hold; conversations, one a line, if it is left out.
	From Source
	// Parallel is how many requests are under way at once.
	Parallel int
	// Explain puts an error of a call into words for the person who runs the import.
	Explain func(ctx context.Context, err error) error
	// Passed is called with the number of bytes that are done, and Failed for a line that was not imported completely,
	// in the order of the files. After ten lines of one kind of failure the others are only counted.
	Passed func(bytes int64)
	Failed func(where string, err error)
	// Ordered is called when the files of another product were read once, and their conversations, of so many bytes,
	// follow in their order.
	Ordered func(bytes int64)
	// Identity, where set, is the identity that the sessions of another product's export are linked to.
	Identity string
}

// Source is what wrote the files of an import.
type Source string

// Sources: conversations in the form of docs/contract.md#import, and the Assistants API.
const (
	FromLines      Source = "lines"
	FromAssistants Source = "assistants"
)

// Store is what an import needs of a client.
type Store interface {
	RecordNewTurns(ctx context.Context, turns []client.WholeTurn) ([]client.Recorded, error)
	StartTurn(ctx context.Context, s client.Start) (client.Turn, error)
	FinalizeTurn(ctx context.Context, f client.Finalize) (client.Turn, error)
	Describe(ctx context.Context, d client.Describe) (client.Session, error)
	Fork(ctx context.Context, f client.Fork) (client.Session, error)
	Correct(ctx context.Context, r client.Correct) (client.Turn, error)
	Turns(ctx context.Context, session string, q client.TurnQuery) (client.TurnPage, error)
	LinkSession(ctx context.Context, identity, session string) (client.Session, error)
}

// Summary is what an import did.
type Summary struct {
	Conversations int64 `json:"conversations"`
	Turns         int64 `json:"turns"`
	Recorded      int64 `json:"turns_recorded"`
	Existed       int64 `json:"turns_there"`
	Failed        int64 `json:"lines_failed"`
	// Branches are the forks of the conversations of another product, and Messages all that its files hold. Dropped
	// counts those in no turn, by their kind.
	Branches int64            `json:"branches,omitempty"`
	Messages int64            `json:"messages,omitempty"`
	Dropped  map[string]int64 `json:"messages_dropped,omitempty"`
	// Redacted turns of an export stay out.
	Redacted int64 `json:"turns_redacted"`
	// More are the failures that Failed was not called for.
	More []Repeated `json:"more_failed,omitempty"`
	// NotKept are the members of the files, and the keys of metadata, that have no place in the log, each once.
	NotKept []string `json:"not_kept,omitempty"`
}

// Import records the conversations of files; "-" is standard input. An error means that the import ended early.
func Import(ctx context.Context, files []string, cfg Config) (Summary, error) {
	im := &importer{
		Config: cfg, seen: map[string][32]byte{}, report: report{waiting: map[int][]line{}, kinds: map[string]int{}},
		notKept: map[string]bool{}, underway: map[string]chan struct{}{}, done: Summary{Dropped: map[string]int64{}},
	}
	if f, is := formats[cfg.From]; is {
		err := im.importTrees(ctx, files, f)
		return im.summary(), err
	}
	readAll := im.read
	if cfg.From == FromAssistants {
		readAll = im.readThreads
	}
	lines := make(chan line, linesAhead)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		// A read from a terminal can't be interrupted: it is abandoned when ctx ends.
		read := make(chan error, 1)
		go func() { read <- readAll(ctx, files, lines) }()
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
				n, batch := im.batch(ctx, lines)
				if len(batch) == 0 {
					return ctx.Err()
				}
				if err := im.lines(ctx, batch); err != nil {
					return err
				}
				im.reportTo(n, batch)
			}
		})
	}
	err := g.Wait()
	return im.summary(), err
}

// summary ends the import.
func (im *importer) summary() Summary {
	im.reportRest()
	im.done.NotKept = slices.Sorted(maps.Keys(im.notKept))
	return im.done
}

// batch gathers the next lines, one worker after the other, and returns the number of the batch.
func (im *importer) batch(ctx context.Context, lines <-chan line) (int, []line) {
	im.gathering.Lock()
	defer im.gathering.Unlock()
	im.batches++
	return im.batches, gather(ctx, lines)
}

const (
	// linesAhead bounds the lines that are read before they can be sent.
	linesAhead = 64
	// turnsOfBatch and bytesOfBatch bound the conversations that go together.
	turnsOfBatch, bytesOfBatch = 500, 2 << 20
)

// linger is how long a line waits for others to go with.
const linger = 50 * time.Millisecond

// gather waits for a line, and takes those that come right after it; none at the end.
func gather(ctx context.Context, lines <-chan line) (batch []line) {
	turns, size := 0, int64(0)
	var late <-chan time.Time
	for turns < turnsOfBatch && size < bytesOfBatch {
		select {
		case l, more := <-lines:
			if !more {
				return batch
			}
			if batch = append(batch, l); late == nil {
				late = time.After(linger)
			}
			turns, size = turns+len(l.turns), size+l.size
		case <-late:
			return batch
		case <-ctx.Done():
			return nil
		}
	}
	return batch
}

type importer struct {
	Config
	seen     map[string][32]byte // the sum of each conversation, by its id
	answered atomic.Bool

	gathering sync.Mutex
	batches   int

	mu      sync.Mutex
	done    Summary
	report  report
	notKept map[string]bool
	// underway are the sessions of an export that are being recorded.
	underway map[string]chan struct{}
}

func (im *importer) count(add func(*Summary)) {
	im.mu.Lock()
	defer im.mu.Unlock()
	add(&im.done)
}

// line is one conversation to import, or what is wrong with it.
type line struct {
	where   string
	size    int64
	session string
	// open, where not nil, is done before the turns are recorded.
	open  func(ctx context.Context, to Store) error
	turns []client.WholeTurn
	// corrections follow the turns.
	corrections []client.Correct
	// recorded, where not nil, is closed when the line is done.
	recorded chan struct{}
	err      error
}

// read sends the non-empty lines in order, each conversation once.
func (im *importer) read(ctx context.Context, files []string, out chan<- line) error {
	defer close(out)
	return eachFile(files, func(name string, f io.Reader) error { return im.readFile(ctx, name, f, out) })
}

// eachFile opens one file after the other; "-" is standard input.
func eachFile(files []string, read func(name string, f io.Reader) error) error {
	for _, name := range files {
		f := os.Stdin
		if name != "-" {
			var err error
			if f, err = os.Open(name); err != nil { //nolint:gosec // the file that the user named
				return err
			}
		}
		err := read(name, f)
		if name != "-" {
			_ = f.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readFile reads the values of a file: conversations, and turns of an export.
func (im *importer) readFile(ctx context.Context, name string, f io.Reader, out chan<- line) error {
	turns := &exported{importer: im, stands: map[string]string{}, send: func(l line) error {
		select {
		case out <- l:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	err := eachValue(f, func(v value) error {
		l := line{where: fmt.Sprintf("%s:%d", name, v.line), size: v.size, err: v.err}
		if l.err == nil {
			if t, is := parseExported(v.text); is {
				return turns.add(ctx, l, t)
			}
			l = im.conversation(l, v.text)
		} else if from := Recognize(v.text); v.line == 1 && from != "" {
			l.err = &UnknownForm{l.where, from} // a zip
		}
		if other, is := errors.AsType[*UnknownForm](l.err); is {
			other.From = cmp.Or(recognizeZip(f), other.From)
			return other
		}
		return errors.Join(turns.flush(ctx), turns.send(l))
	})
	if err == nil {
		err = turns.flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// conversation reads a conversation, each once.
func (im *importer) conversation(l line, text []byte) line {
	l.session, l.turns, l.err = Parse(text)
	if from := Recognize(text); l.err != nil && from != "" && from != FromOpenAIJSONL {
		l.err = &UnknownForm{l.where, from}
	}
	if l.err == nil {
		l.err = im.once(l.session, text)
	}
	if l.err == nil {
		im.leaveOut(text, "conversation_id", "messages")
	}
	return l
}

// Lines that are passed over, and are no faults of their own.
var (
	errSameLine = errors.New("the same line again")
	errReported = errors.New("a part of it is wrong, and was reported")
)

// once refuses a second conversation with the same id, since its turns would be taken for turns of the first.
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

// lines records conversations. It reports faults of the lines, and returns an error only if the run must end.
func (im *importer) lines(ctx context.Context, batch []line) error {
	var good []*imported
	for i := range batch {
		l := &batch[i]
		if l.err == nil {
			im.count(func(s *Summary) { s.Conversations++; s.Turns += int64(len(l.turns) + len(l.corrections)) })
			good = append(good, &imported{line: l})
		}
	}
	err := im.record(ctx, good)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	for i := range batch {
		im.settle(&batch[i])
	}
	return nil
}
