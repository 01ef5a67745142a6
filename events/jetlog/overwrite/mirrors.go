package overwrite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// Mirrors returns the streams of the log's account that mirror a subject of a partition's stream, and the mirrors of
// these streams. NATS does not pass an erasure on to a mirror. A mirror that has reached the position at copies nothing
// from before it any more. While a mirror is behind that position, Mirrors fails with jetlog.ErrUnavailable.
func (l *Log) Mirrors(ctx context.Context, subject string, at events.Position) ([]string, error) {
	p, err := l.inside.Partition(at.Partition)
	if err != nil {
		return nil, err
	}
	mirrors, err := l.inside.Wire.Mirrors(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{p.Stream}
	for i := 0; i < len(names); i++ {
		for _, m := range mirrors[names[i]] {
			if !copies(m.Config.Mirror, subject) {
				continue
			}
			if m.State.LastSeq < at.Seq {
				return nil, fmt.Errorf("%w: the stream %s, which mirrors %s, is at %d and has yet to reach %d",
					jetlog.ErrUnavailable, m.Config.Name, names[i], m.State.LastSeq, at.Seq)
			}
			names = append(names, m.Config.Name)
		}
	}
	return names[1:], nil
}

// copies reports whether a mirror copies the events of a subject. A mirror that does not copy them may never reach the
// position.
func copies(m *jetstream.StreamSource, subject string) bool {
	covers := func(filter string) bool { return covered(strings.Split(filter, "."), strings.Split(subject, ".")) }
	if len(m.SubjectTransforms) > 0 {
		return slices.ContainsFunc(m.SubjectTransforms, func(t jetstream.SubjectTransformConfig) bool {
			return covers(t.Source)
		})
	}
	return m.FilterSubject == "" || covers(m.FilterSubject)
}

// covered reports whether a filter matches a subject, both given in tokens.
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

// LeftIn returns the sequences, up to upTo, of a session's events that a mirror still holds and the log does not.
func (l *Log) LeftIn(ctx context.Context, mirror, sessionID string, upTo uint64) (out []uint64, err error) {
	subject := events.SessionSubject(sessionID)
	inLog := map[uint64]bool{}
	err = l.each(ctx, l.streamOf(sessionID), subject, upTo, func(seq uint64) { inLog[seq] = true })
	if err == nil {
		err = l.each(ctx, mirror, subject, upTo, func(seq uint64) {
			if !inLog[seq] {
				out = append(out, seq)
			}
		})
	}
	return out, err
}

// each calls f with the sequences, up to upTo, of a subject's events, as the leader of a stream knows them.
func (l *Log) each(ctx context.Context, stream, subject string, upTo uint64, f func(seq uint64)) error {
	for seq := uint64(1); ; seq++ {
		m, err := l.inside.Wire.Message(ctx, stream, map[string]any{"seq": seq, "next_by_subj": subject})
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
