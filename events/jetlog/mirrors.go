package jetlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// mirrors gives the account's mirrors by the names of the streams that they mirror. A stream
// of another domain or account is another, though it may have the same name.
func (l *Log) mirrors(ctx context.Context) (map[string][]*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	out := map[string][]*jetstream.StreamInfo{}
	streams := l.js.ListStreams(ctx)
	for info := range streams.Info() {
		if m := info.Config.Mirror; m != nil && m.External == nil {
			out[m.Name] = append(out[m.Name], info)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("look for mirrors: %w: %w", ErrUnavailable, err)
	}
	return out, nil
}

// Mirrors gives the streams of the log's account that mirror what stands on a subject of
// the partition of a position, and the mirrors of those, once each has reached it: what it
// has not copied by then it never will. NATS does not pass an erasure on to them.
// ErrUnavailable while one is behind.
func (l *Log) Mirrors(ctx context.Context, subject string, at events.Position) ([]string, error) {
	p, err := l.partition(at.Partition)
	if err != nil {
		return nil, err
	}
	mirrors, err := l.mirrors(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{p.name}
	for i := 0; i < len(names); i++ {
		for _, m := range mirrors[names[i]] {
			if !copies(m.Config.Mirror, subject) {
				continue
			}
			if m.State.LastSeq < at.Seq {
				return nil, fmt.Errorf("%w: the stream %s, which mirrors %s, is at %d and has yet to reach %d", ErrUnavailable, m.Config.Name, names[i], m.State.LastSeq, at.Seq)
			}
			names = append(names, m.Config.Name)
		}
	}
	return names[1:], nil
}

// copies tells whether a mirror takes what stands on a subject. One that does not is never
// said to have reached it.
func copies(m *jetstream.StreamSource, subject string) bool {
	covers := func(filter string) bool { return covered(strings.Split(filter, "."), strings.Split(subject, ".")) }
	if len(m.SubjectTransforms) > 0 {
		return slices.ContainsFunc(m.SubjectTransforms, func(t jetstream.SubjectTransformConfig) bool { return covers(t.Source) })
	}
	return m.FilterSubject == "" || covers(m.FilterSubject)
}

// covered tells whether a filter takes a subject, both in tokens.
func covered(filter, subject []string) bool {
	for i, token := range filter {
		if token == ">" {
			return i < len(subject)
		}
		if i == len(subject) || token != "*" && token != subject[i] {
			return false
		}
	}
	return len(filter) == len(subject)
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
