package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
	"github.com/turnledger/turnledger/events/pause"
)

// Vacate deletes the streams of a log that has never held an event, and the notes of its side effects, so that copies
// can take their places. This Log can't be used afterwards. If there was an event, Vacate leaves everything as it was
// and fails with jetlog.ErrNotEmpty.
func (l *Log) Vacate(ctx context.Context) error {
	if err := l.Vacant(ctx); err != nil {
		return err
	}
	// From here until Restored nobody can open the log, even if this process ends.
	_, err := l.inside.Wire.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name: layout.RestoringStream, Description: "A backup is being restored", Replicas: l.inside.Layout.Replicas,
	})
	if err != nil {
		return jetlog.Unavailable("make "+layout.RestoringStream, err)
	}
	// A stream with another subject gets no more events. So nothing can come in between: no event on its way to the
	// leader, and none that the leader has taken but the other servers have not confirmed yet.
	var before []jetstream.StreamConfig
	for k := 0; err == nil && k < l.inside.Layout.Partitions; k++ {
		err = l.edit(ctx, k, func(cfg *jetstream.StreamConfig) {
			before = append(before, *cfg)
			cfg.Subjects = []string{vacatedSubject(cfg.Name)}
			cfg.Metadata = maps.Clone(cfg.Metadata)
			cfg.Metadata[layout.RestoringKey] = "yes"
		})
		if err == nil {
			err = l.nothingTaken(ctx, k)
		}
	}
	if err == nil {
		err = l.Vacant(ctx)
	}
	if err != nil {
		return errors.Join(err, l.reopen(ctx, before))
	}
	return l.remove(ctx)
}

// nothingTaken fails with jetlog.ErrNotEmpty if the leader of a vacated stream has taken an event. In a cluster the
// stream's state shows an event only once a majority has it, and the event may still be acknowledged. But when the
// leader checks an expected sequence, it also counts events without a majority, and it handles messages in the order of
// their arrival (nats-server 2.15, checkMsgHeadersPreClusteredProposal). The expectation here can never hold, so
// nothing is stored.
func (l *Log) nothingTaken(ctx context.Context, k int) error {
	name := events.StreamName(k)
	_, err := l.inside.Wire.JS.Publish(ctx, vacatedSubject(name), nil, jetstream.WithExpectStream(name),
		jetstream.WithExpectLastSequence(math.MaxInt64), jetstream.WithRetryAttempts(10))
	var refusal *jetstream.APIError
	if !errors.As(err, &refusal) || refusal.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		return jetlog.Unavailable("ask "+name+" what it has taken", err)
	}
	if refusal.Description != "wrong last sequence: 0" {
		return fmt.Errorf("%s: %w", name, jetlog.ErrNotEmpty)
	}
	return nil
}

// vacatedSubject is the only subject of a stream that Vacate is about to delete.
func vacatedSubject(stream string) string { return "vacated." + stream }

// Vacant fails with jetlog.ErrNotEmpty if the log has ever held an event.
func (l *Log) Vacant(ctx context.Context) error {
	for k := range l.inside.Layout.Partitions {
		if err := l.empty(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) empty(ctx context.Context, k int) error {
	head, err := l.inside.LeaderHead(ctx, k)
	if err == nil && head > 0 {
		return fmt.Errorf("%s: %w", events.StreamName(k), jetlog.ErrNotEmpty)
	}
	return err
}

// reopen restores the former configuration of streams, even if the caller's ctx has ended.
func (l *Log) reopen(ctx context.Context, before []jetstream.StreamConfig) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chunkDeadline)
	defer cancel()
	for _, cfg := range before {
		err = errors.Join(err, l.update(ctx, cfg))
	}
	return errors.Join(err, l.delete(ctx, layout.RestoringStream))
}

// remove deletes all buckets of the log, and the streams that the restore has vacated or made. It leaves other streams
// of these names: a process that looked for the log just before the restore may have made them since, and written to
// them.
func (l *Log) remove(ctx context.Context) error {
	names := l.inside.Wire.JS.StreamNames(ctx)
	var all []string
	for name := range names.Name() {
		if ours(name) {
			all = append(all, name)
		}
	}
	if err := names.Err(); err != nil {
		return jetlog.Unavailable("list streams", err)
	}
	for k := range l.inside.Layout.Partitions {
		all = append(all, events.StreamName(k))
	}
	for _, name := range all {
		// Purge first. If a stream is deleted while the files of an earlier stream of its name are still being removed,
		// its own files stay, and the next stream of its name would find their events (nats-server 2.15,
		// fileStore.Delete; its error is dropped).
		s, err := l.inside.Wire.JS.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err == nil && !ours(name) && s.CachedInfo().Config.Metadata[layout.RestoringKey] == "" {
			continue
		}
		if err == nil && s.CachedInfo().State.Msgs > 0 {
			err = s.Purge(ctx)
		}
		if err != nil {
			return jetlog.Unavailable("take "+name+" away", err)
		}
		if err := l.delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes a stream, if it exists.
func (l *Log) delete(ctx context.Context, name string) error {
	if err := l.inside.Wire.JS.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return jetlog.Unavailable("take "+name+" away", err)
	}
	return nil
}

// Restore takes in the copies of all partitions, one after the other, after Vacate has made room. copies returns the
// copy of a partition, never a nil reader. If a copy fails, or if whole returns an error after the last one, Restore
// deletes all copies that it took in, so that nobody takes part of a log for a whole one. The restored events are on
// disk once a new jetlog.Log has settled them. Until Restored is called, only a log with jetlog.Config.Restoring can
// open them and write to them.
func (l *Log) Restore(
	ctx context.Context, copies func(partition int) (io.Reader, error), whole func(context.Context) error,
) error {
	err := l.takeIn(ctx, copies)
	if err == nil {
		err = whole(ctx)
	}
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chunkDeadline)
	defer cancel()
	gone := l.remove(ctx)
	if gone == nil {
		gone = l.nothingLeft(ctx)
	}
	if gone != nil {
		return errors.Join(err, gone)
	}
	return errors.Join(err, l.delete(ctx, layout.RestoringStream))
}

// nothingLeft makes the streams of all partitions once more, and deletes them, until each begins empty. A copy that was
// deleted soon after Vacate can keep its files (see remove), and whoever opened the log next would find its sequences.
func (l *Log) nothingLeft(ctx context.Context) error {
	restoring := l.inside.Layout
	restoring.Restoring = true
	for k := range restoring.Partitions {
		wait := pause.Growing(5*time.Millisecond, time.Second)
		cfg := restoring.Stream(k)
		for {
			s, err := l.inside.Wire.JS.CreateStream(ctx, cfg)
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				break // the stream of another process, as remove says
			}
			if err == nil {
				err = l.delete(ctx, cfg.Name)
			}
			if err == nil && s.CachedInfo().State.LastSeq == 0 {
				break
			}
			if !pause.For(ctx, wait.NextBackOff()) {
				return jetlog.Unavailable("see whether "+cfg.Name+" is gone", errors.Join(err, ctx.Err()))
			}
		}
	}
	return nil
}

func (l *Log) takeIn(ctx context.Context, copies func(partition int) (io.Reader, error)) error {
	for k := range l.inside.Layout.Partitions {
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

// Restored ends a restore: from now on any process may open the log, and write to it.
func (l *Log) Restored(ctx context.Context) error {
	whole := l.inside.Layout
	whole.Restoring = false
	for k := range whole.Partitions {
		err := l.edit(ctx, k, func(cfg *jetstream.StreamConfig) {
			cfg.Subjects, cfg.SubjectTransform = whole.Stream(k).Subjects, nil
			cfg.Metadata = maps.Clone(cfg.Metadata)
			delete(cfg.Metadata, layout.RestoringKey)
		})
		if err != nil {
			return err
		}
	}
	return l.delete(ctx, layout.RestoringStream)
}

// edit changes the configuration of a partition's stream.
func (l *Log) edit(ctx context.Context, k int, change func(*jetstream.StreamConfig)) error {
	name := events.StreamName(k)
	have, err := l.inside.Wire.JS.Stream(ctx, name)
	if err != nil {
		return jetlog.Unavailable("look at "+name, err)
	}
	cfg := have.CachedInfo().Config
	change(&cfg)
	return l.update(ctx, cfg)
}

func (l *Log) restore(ctx context.Context, k int, from io.Reader) error {
	restoring := l.inside.Layout
	restoring.Restoring = true
	cfg := restoring.Stream(k)
	cfg.Metadata[layout.RestoredKey] = time.Now().UTC().Format(time.RFC3339Nano)
	var out struct {
		Deliver string              `json:"deliver_subject"`
		Error   *jetstream.APIError `json:"error"`
	}
	request := map[string]any{"config": cfg, "state": struct{}{}}
	if err := l.inside.Wire.Call(ctx, "STREAM.RESTORE."+cfg.Name, request, &out); err != nil {
		return jetlog.Unavailable("restore "+cfg.Name, err)
	}
	if out.Error != nil {
		return jetlog.Unavailable("restore "+cfg.Name, out.Error)
	}
	return sendParts(ctx, l.inside.Wire.NC, out.Deliver, cfg.Name, from)
}

// sendParts sends the copy of a stream in parts, and then its end.
func sendParts(ctx context.Context, nc *nats.Conn, to, stream string, from io.Reader) error {
	buf := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(from, buf)
		if n > 0 {
			if err := send(ctx, nc, to, buf[:n], chunkDeadline); err != nil {
				return fmt.Errorf("restore %s: %w", stream, err)
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
	if err := send(ctx, nc, to, nil, time.Hour); err != nil {
		return fmt.Errorf("restore %s: %w", stream, err)
	}
	return nil
}

// send sends a part of a copy and waits until the server has stored it.
func send(ctx context.Context, nc *nats.Conn, to string, part []byte, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, to, part)
	// The other nodes of a cluster learn of the address a moment after the node that listens. Until then the part has
	// reached nobody.
	wait := pause.Growing(5*time.Millisecond, time.Second)
	for began := time.Now(); errors.Is(err, nats.ErrNoResponders) && time.Since(began) < wire.ReadDeadline; {
		pause.For(ctx, wait.NextBackOff())
		m, err = nc.RequestWithContext(ctx, to, part)
	}
	if err != nil {
		return jetlog.Unavailable("", err)
	}
	if len(m.Data) == 0 {
		return nil
	}
	var out struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &out); err != nil {
		return jetlog.Unavailable("", err)
	}
	if out.Error != nil {
		return fmt.Errorf("%w: the server does not take it: %w", jetlog.ErrUnavailable, out.Error)
	}
	return nil
}
