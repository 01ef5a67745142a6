package jetlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

const (
	partitionsKey = "turnledger.partitions"
	// dupWindow must be longer than any write asks again.
	dupWindow = 2 * time.Minute
)

// openStreams looks at all streams before it makes the missing ones: a missing one
// beside others that hold events was lost, and an empty one in its place would read
// as no history.
func (l *Log) openStreams(ctx context.Context) ([]*jetstream.StreamInfo, error) {
	infos := make([]*jetstream.StreamInfo, l.cfg.Partitions)
	used := ""
	for k := range infos {
		stream, err := l.js.Stream(ctx, events.StreamName(k))
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			continue
		case err != nil:
			return nil, fmt.Errorf("open stream %s: %w: %w", events.StreamName(k), ErrUnavailable, err)
		}
		infos[k] = stream.CachedInfo()
		if err := fits(infos[k].Config, l.streamConfig(k)); err != nil {
			return nil, err
		}
		if infos[k].State.LastSeq > 0 {
			used = infos[k].Config.Name
		}
	}
	for k := range infos {
		if infos[k] != nil {
			continue
		}
		if used != "" {
			return nil, fmt.Errorf("%w: stream %s is missing, but %s holds events: restore it from a backup (or start a new log in an empty data directory)",
				ErrStream, events.StreamName(k), used)
		}
		var err error
		if infos[k], err = l.makeStream(ctx, k); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// Server error codes of a stream that can't be made as it is wanted.
const (
	codeReplicasNotSupported = 10074
	codeSubjectsOverlap      = 10065
	codeNoSuitablePeers      = 10005
)

// gathering is how long the servers of a cluster that has just started may take to
// know each other.
const gathering = 10 * time.Second

func (l *Log) makeStream(ctx context.Context, k int) (*jetstream.StreamInfo, error) {
	want := l.streamConfig(k)
	stream, err := l.createStream(ctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		// Another process made it meanwhile, otherwise than this one would.
		stream, err = l.js.Stream(ctx, want.Name)
	}
	switch code, _ := apiError(err); {
	case err == nil:
		info := stream.CachedInfo()
		return info, fits(info.Config, want)
	case code == codeReplicasNotSupported:
		return nil, fmt.Errorf("%w: the NATS server is not in a cluster: set TURNLEDGER_REPLICAS=1", ErrStream)
	case code == codeNoSuitablePeers:
		return nil, fmt.Errorf("%w: the NATS cluster has no room for %d replicas of %s: start more servers, or set TURNLEDGER_REPLICAS: %w",
			ErrUnavailable, want.Replicas, want.Name, err)
	case code == codeSubjectsOverlap:
		return nil, fmt.Errorf("%w: another stream captures subjects of %s: give Turnledger a NATS account of its own, and the TURNLEDGER_PARTITIONS that the log was made with",
			ErrStream, want.Name)
	default:
		return nil, fmt.Errorf("make stream %s: %w: %w", want.Name, ErrUnavailable, err)
	}
}

// createStream waits a while for the servers of a cluster to gather.
func (l *Log) createStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	var between patience
	for began := time.Now(); ; {
		stream, err := l.js.CreateStream(ctx, want)
		if code, _ := apiError(err); code != codeNoSuitablePeers || time.Since(began) > gathering {
			return stream, err
		}
		between.wait(ctx)
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

func (l *Log) streamConfig(k int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               events.StreamName(k),
		Description:        "Turnledger's log, partition " + strconv.Itoa(k),
		Subjects:           events.StreamSubjects(k, l.cfg.Partitions),
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Replicas:           l.cfg.Replicas,
		Duplicates:         dupWindow,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Metadata:           map[string]string{partitionsKey: strconv.Itoa(l.cfg.Partitions), syncKey: l.mark()},
	}
}

// fits holds a stream that is there against the one wanted.
func fits(have, want jetstream.StreamConfig) error {
	var err error
	complain := func(format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("%w: stream %s "+format, append([]any{ErrStream, have.Name}, args...)...))
	}
	if n := have.Metadata[partitionsKey]; n != want.Metadata[partitionsKey] {
		if n == "" {
			complain("was not made by Turnledger: give Turnledger a NATS account of its own")
			return err
		}
		complain("was made with %s partitions, which is fixed for ever: set TURNLEDGER_PARTITIONS=%s (or start a new log in an empty data directory)", n, n)
		return err
	}
	if have.Storage != want.Storage {
		complain("is kept in %s, not in files: an acknowledged turn would not survive a restart; make the log anew on file storage", have.Storage)
	}
	if have.Replicas != want.Replicas {
		complain("has %d replicas, not %d: set TURNLEDGER_REPLICAS=%d, or change the stream with: nats stream edit %s --replicas %d",
			have.Replicas, want.Replicas, have.Replicas, have.Name, want.Replicas)
	}
	a, b := slices.Sorted(slices.Values(have.Subjects)), slices.Sorted(slices.Values(want.Subjects))
	if !slices.Equal(a, b) {
		complain("captures other subjects than its partition owns: restore them, or make the log anew")
	}
	if have.Duplicates < want.Duplicates {
		complain("forgets event ids after %s, sooner than a write may be asked again: undo it with: nats stream edit %s --dupe-window %s",
			have.Duplicates, have.Name, want.Duplicates)
	}
	for _, change := range changes(have) {
		complain("was changed (%s): undo it with: nats stream edit %s", change, have.Name)
	}
	return err
}

// changes names what would lose, hide or forge events, or keep erased ones.
func changes(have jetstream.StreamConfig) (found []string) {
	for _, c := range []struct {
		is   bool
		what string
	}{
		{have.MaxMsgs > 0 || have.MaxBytes > 0 || have.MaxAge > 0 || have.MaxMsgsPerSubject > 0, "limits: the log is kept whole"},
		{have.MaxMsgSize > 0, "a limit on the size of events"},
		{have.MaxConsumers > 0, "a limit on consumers"},
		{have.Retention != jetstream.LimitsPolicy, "another retention policy"},
		{!have.AllowAtomicPublish, "no atomic publish"},
		{!have.AllowDirect, "no direct get"},
		{have.NoAck, "no acknowledgements"},
		{have.Sealed || have.DenyDelete || have.DenyPurge, "sealed, or deletes denied: erasure could not work"},
		{have.AllowRollup, "roll-ups: any publisher could delete a session"},
		{have.AllowMsgTTL, "per-message TTL: any publisher could make events vanish"},
		{have.AllowMsgSchedules || have.AllowMsgCounter, "message schedules or counters"},
		{have.PersistMode == jetstream.AsyncPersistMode, "asynchronous persistence: what is acknowledged would not be on disk"},
		{have.Compression != jetstream.NoCompression, "compression: the server does not overwrite erased events then"},
		{have.Mirror != nil || len(have.Sources) > 0, "it mirrors or sources another stream"},
		{have.SubjectTransform != nil, "a subject transform"},
	} {
		if c.is {
			found = append(found, c.what)
		}
	}
	return found
}
