package jetlog

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// mirrorsEvery is the pause between two looks for mirrors.
const mirrorsEvery = 10 * time.Second

// lookForMirrors notes which partitions are mirrored; where it can't be told, all are.
// Unless told otherwise the server lets mirrors answer direct reads of the stream that
// they mirror. A read that knows asks the leader what it must find.
func (l *Log) lookForMirrors(ctx context.Context) {
	mirrors, err := l.mirrors(ctx)
	for _, p := range l.partitions {
		p.mirrored.Store(err != nil || len(mirrors[p.name]) > 0)
	}
}

// mirrors gives the account's mirrors by the names of the streams that they mirror.
func (l *Log) mirrors(ctx context.Context) (map[string][]*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	out := map[string][]*jetstream.StreamInfo{}
	streams := l.js.ListStreams(ctx)
	for info := range streams.Info() {
		if m := info.Config.Mirror; m != nil {
			out[m.Name] = append(out[m.Name], info)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("look for mirrors: %w: %w", ErrUnavailable, err)
	}
	return out, nil
}

// Mirrors gives the streams of the log's account that mirror the partition of a
// position, once each has reached it: what it has not copied by then it never will. NATS
// does not pass an erasure on to them. ErrUnavailable while one is behind.
func (l *Log) Mirrors(ctx context.Context, at events.Position) ([]string, error) {
	p, err := l.partition(at.Partition)
	if err != nil {
		return nil, err
	}
	mirrors, err := l.mirrors(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range mirrors[p.name] {
		if m.State.LastSeq < at.Seq {
			return nil, fmt.Errorf("%w: the stream %s, which mirrors %s, is at %d and has yet to reach %d", ErrUnavailable, m.Config.Name, p.name, m.State.LastSeq, at.Seq)
		}
		out = append(out, m.Config.Name)
	}
	return out, nil
}

// LeftIn gives the sequences of a session's events that a mirror still holds and the log
// does not, up to one.
func (l *Log) LeftIn(ctx context.Context, mirror, sessionID string, upTo uint64) (out []uint64, err error) {
	p, subject := l.of(sessionID), events.SessionSubject(sessionID)
	held := map[uint64]bool{}
	err = l.each(ctx, p.name, subject, upTo, func(seq uint64) { held[seq] = true })
	if err == nil {
		err = l.each(ctx, mirror, subject, upTo, func(seq uint64) {
			if !held[seq] {
				out = append(out, seq)
			}
		})
	}
	return out, err
}

// each gives the sequences of a subject's events up to one, as the leader of a stream
// knows them.
func (l *Log) each(ctx context.Context, stream, subject string, upTo uint64, f func(seq uint64)) error {
	for seq := uint64(1); ; seq++ {
		m, err := l.messageOf(ctx, stream, map[string]any{"seq": seq, "next_by_subj": subject})
		if err != nil {
			return fmt.Errorf("read %s: %w", stream, err)
		}
		if m == nil || m.Seq > upTo {
			return nil
		}
		seq = m.Seq
		f(seq)
	}
}

// EraseIn overwrites the event at a sequence of a mirror, if there is one.
func (l *Log) EraseIn(ctx context.Context, mirror string, seq uint64) error {
	if _, err := l.eraseFrom(ctx, mirror, seq); err != nil {
		return fmt.Errorf("erase %d of the mirror %s: %w", seq, mirror, err)
	}
	return nil
}
