package jetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Moment is where a stream stood when it was copied.
type Moment struct {
	First  uint64 `json:"first_seq"`
	Last   uint64 `json:"last_seq"`
	Events uint64 `json:"messages"`
	Bytes  uint64 `json:"bytes"`
}

const (
	chunkSize = 256 << 10
	// chunkDeadline is how long the server may take for a part of a copy, or to take one.
	chunkDeadline = 30 * time.Second
)

// Snapshot writes a copy of a partition's stream, as it stands at one moment, while the
// log is in use: in NATS's own form, in S2 frames. The sums of all its events are looked at
// before. begin is told of the moment before anything is written, and gives the writer,
// which must take what comes within seconds.
func (l *Log) Snapshot(ctx context.Context, partition int, begin func(Moment) (io.Writer, error)) error {
	p, err := l.partition(partition)
	if err != nil {
		return err
	}
	inbox := l.nc.NewInbox()
	sub, err := l.nc.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("copy %s: %w: %w", p.name, ErrUnavailable, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	var out struct {
		State Moment              `json:"state"`
		Error *jetstream.APIError `json:"error"`
	}
	// To look at all sums takes as long as the log is large: the caller's patience counts.
	ask := map[string]any{"deliver_subject": inbox, "no_consumers": true, "jsck": true, "chunk_size": chunkSize}
	if err := l.api(ctx, "STREAM.SNAPSHOT."+p.name, ask, &out); err != nil {
		return fmt.Errorf("copy %s: %w: %w", p.name, ErrUnavailable, err)
	}
	if out.Error != nil {
		return fmt.Errorf("copy %s: %w: %w", p.name, ErrUnavailable, out.Error)
	}
	to, err := begin(out.State)
	if err != nil {
		return err
	}
	for part := 1; ; part++ {
		data, over, err := nextPart(ctx, sub, part)
		if err != nil {
			return fmt.Errorf("copy %s: %w: %w", p.name, ErrUnavailable, err)
		}
		if over {
			return nil
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
}

var errPart = errors.New("a part of the copy was lost")

// nextPart gives a part of a copy, or tells that the last one has come. Full parts are
// numbered, and asked on with an answer; the last one is neither.
func nextPart(ctx context.Context, sub *nats.Subscription, n int) (data []byte, over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, chunkDeadline)
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	switch {
	case err != nil:
		return nil, false, err
	case len(m.Data) == 0:
		if status := m.Header.Get("Status"); status != "" && status != "204" {
			return nil, false, fmt.Errorf("the server broke it off: %s %s", status, m.Header.Get("Description"))
		}
		return nil, true, nil
	case m.Reply == "":
		return m.Data, false, nil
	case m.Reply[strings.LastIndexByte(m.Reply, '.')+1:] != strconv.Itoa(n):
		return nil, false, errPart
	}
	return m.Data, false, m.Respond(nil)
}

// ErrNotEmpty is said where a log that holds events is to take a copy in.
var ErrNotEmpty = errors.New("the log holds events: restore into an empty one (another TURNLEDGER_DATA_DIR, or another NATS account)")

// Vacate takes the streams of a log that has never held an event out of the way, and what
// side effects remember with them, so that copies can take their places. This Log is of
// no use afterwards. ErrNotEmpty, and all is as it was, where there was an event.
func (l *Log) Vacate(ctx context.Context) error {
	if err := l.Vacant(ctx); err != nil {
		return err
	}
	// From here on no publisher reaches them, so that nothing can come in between.
	var before []jetstream.StreamConfig
	for _, p := range l.partitions {
		have, err := l.js.Stream(ctx, p.name)
		if err != nil {
			return errors.Join(fmt.Errorf("look at %s: %w: %w", p.name, ErrUnavailable, err), l.reopen(ctx, before))
		}
		cfg := have.CachedInfo().Config
		before = append(before, cfg)
		cfg.Subjects = vacated(p.name)
		if err = l.update(ctx, cfg); err == nil {
			err = l.empty(ctx, p)
		}
		if err != nil {
			return errors.Join(err, l.reopen(ctx, before))
		}
	}
	return l.remove(ctx)
}

// vacated are the subjects of a stream that takes no events: before it is taken out of the way, and until all copies are
// in. Open refuses such a stream, so that nobody takes a part of a log that was left by a process that ended in the
// middle of a restore for the whole.
func vacated(stream string) []string { return []string{"vacated." + stream} }

// Vacant is ErrNotEmpty for a log that has held an event.
func (l *Log) Vacant(ctx context.Context) error {
	for _, p := range l.partitions {
		if err := l.empty(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) empty(ctx context.Context, p *partition) error {
	head, err := l.head(ctx, p)
	if err == nil && head > 0 {
		return fmt.Errorf("%s: %w", p.name, ErrNotEmpty)
	}
	return err
}

// reopen makes streams what they were, also when who asked is gone.
func (l *Log) reopen(ctx context.Context, before []jetstream.StreamConfig) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chunkDeadline)
	defer cancel()
	for _, cfg := range before {
		err = errors.Join(err, l.update(ctx, cfg))
	}
	return err
}

// remove deletes all streams and buckets of the log.
func (l *Log) remove(ctx context.Context) error {
	names := l.js.StreamNames(ctx)
	var all []string
	for name := range names.Name() {
		if ours(name) {
			all = append(all, name)
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list streams: %w: %w", ErrUnavailable, err)
	}
	for _, p := range l.partitions {
		all = append(all, p.name)
	}
	for _, name := range all {
		// A stream that is deleted while the files of one of its name are still being removed leaves its own behind, and
		// the next one of its name would find their events (nats-server 2.15, fileStore.Delete; its error is dropped).
		if s, err := l.js.Stream(ctx, name); err == nil && s.CachedInfo().State.Msgs > 0 {
			if err := s.Purge(ctx); err != nil {
				return fmt.Errorf("take %s away: %w: %w", name, ErrUnavailable, err)
			}
		}
		if err := l.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("take %s away: %w: %w", name, ErrUnavailable, err)
		}
	}
	return nil
}

// Restore takes the copies of all partitions in, one after the other, into a log that
// Vacate has made room in; copies gives each, and nil readers never. When all are in and whole has nothing against them,
// they take events. Where something fails, those that were taken in go again, so that no part of a log is taken for
// one. What was restored is on disk when a new Log has settled it. Until Restored is called, only a Log with
// Config.Restoring opens it.
func (l *Log) Restore(ctx context.Context, copies func(partition int) (io.Reader, error), whole func(context.Context) error) error {
	err := l.takeIn(ctx, copies)
	if err == nil {
		err = whole(ctx)
	}
	for k := 0; err == nil && k < len(l.partitions); k++ {
		err = l.edit(ctx, k, func(cfg *jetstream.StreamConfig) { cfg.Subjects = l.streamConfig(k).Subjects })
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chunkDeadline)
		defer cancel()
		return errors.Join(err, l.remove(ctx))
	}
	return nil
}

func (l *Log) takeIn(ctx context.Context, copies func(partition int) (io.Reader, error)) error {
	for k := range l.partitions {
		from, err := copies(k)
		if err == nil {
			err = l.restore(ctx, k, from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Restored ends a restore: from now on everybody may open the log.
func (l *Log) Restored(ctx context.Context) error {
	for k := range l.partitions {
		err := l.edit(ctx, k, func(cfg *jetstream.StreamConfig) {
			cfg.Metadata = maps.Clone(cfg.Metadata)
			delete(cfg.Metadata, restoringKey)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// edit changes the configuration of a partition's stream.
func (l *Log) edit(ctx context.Context, k int, change func(*jetstream.StreamConfig)) error {
	name := l.partitions[k].name
	have, err := l.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look at %s: %w: %w", name, ErrUnavailable, err)
	}
	cfg := have.CachedInfo().Config
	change(&cfg)
	return l.update(ctx, cfg)
}

func (l *Log) restore(ctx context.Context, k int, from io.Reader) error {
	cfg := l.streamConfig(k)
	cfg.Subjects = vacated(cfg.Name)
	cfg.Metadata[restoringKey] = "yes"
	cfg.Metadata[restoredKey] = l.cfg.Now().UTC().Format(time.RFC3339Nano)
	var out struct {
		Deliver string              `json:"deliver_subject"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := l.api(ctx, "STREAM.RESTORE."+cfg.Name, map[string]any{"config": cfg, "state": struct{}{}}, &out); err != nil {
		return fmt.Errorf("restore %s: %w: %w", cfg.Name, ErrUnavailable, err)
	}
	if out.Error != nil {
		return fmt.Errorf("restore %s: %w: %w", cfg.Name, ErrUnavailable, out.Error)
	}
	buf := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(from, buf)
		if n > 0 {
			if err := l.give(ctx, out.Deliver, buf[:n], chunkDeadline); err != nil {
				return fmt.Errorf("restore %s: %w", cfg.Name, err)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	// The server reads the whole log before it answers.
	if err := l.give(ctx, out.Deliver, nil, time.Hour); err != nil {
		return fmt.Errorf("restore %s: %w", cfg.Name, err)
	}
	return nil
}

// give sends a part of a copy and waits until the server has taken it.
func (l *Log) give(ctx context.Context, to string, part []byte, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, to, part)
	// Another node of a cluster than the one that listens hears of the address a moment later; so far it has reached nobody.
	var wait patience
	for began := time.Now(); errors.Is(err, nats.ErrNoResponders) && time.Since(began) < readDeadline; {
		wait.wait(ctx)
		m, err = l.nc.RequestWithContext(ctx, to, part)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if len(m.Data) == 0 {
		return nil
	}
	var out struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &out); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if out.Error != nil {
		return fmt.Errorf("%w: the server does not take it: %w", ErrUnavailable, out.Error)
	}
	return nil
}
