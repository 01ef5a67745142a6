package jetlog

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// openStreams looks at all streams before it makes the missing ones. If a stream is missing while others hold events,
// the stream was lost, and openStreams fails: an empty stream in its place would look like no history.
func (l *Log) openStreams(ctx context.Context) ([]*jetstream.StreamInfo, error) {
	if err := l.notRestoring(ctx); err != nil {
		return nil, err
	}
	infos := make([]*jetstream.StreamInfo, l.cfg.Partitions)
	used := ""
	for k := range infos {
		stream, err := l.look(ctx, events.StreamName(k))
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			continue
		case err != nil:
			return nil, Unavailable("open stream "+events.StreamName(k), err)
		}
		infos[k] = stream.CachedInfo()
		if err := layout.Fits(infos[k].Config, l.layout().Stream(k)); err != nil {
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
			return nil, fmt.Errorf("%w: stream %s is missing, but %s holds events: "+
				"restore it from a backup (or start a new log in an empty data directory)",
				ErrStream, events.StreamName(k), used)
		}
		var err error
		if infos[k], err = l.makeStream(ctx, k); err != nil {
			return nil, err
		}
	}
	// If a restore has begun since the first check, it would take this process's writes for a part of the old log.
	return infos, l.notRestoring(ctx)
}

// notRestoring fails with ErrStream while the log is being restored, or if a restore was interrupted.
func (l *Log) notRestoring(ctx context.Context) error {
	_, err := l.look(ctx, layout.RestoringStream)
	switch {
	case l.cfg.Restoring || errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return Unavailable("open stream "+layout.RestoringStream, err)
	}
	return fmt.Errorf("%w: a backup is being restored, or its restore has ended before its end: "+
		"wait for turnledger restore, or empty the data directory and restore again", ErrStream)
}

// Server error codes of a stream that can't be made as requested.
const (
	codeReplicasNotSupported = 10074
	codeSubjectsOverlap      = 10065
)

func (l *Log) makeStream(ctx context.Context, k int) (*jetstream.StreamInfo, error) {
	want := l.layout().Stream(k)
	stream, err := l.createStream(ctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		// Another process has made the stream meanwhile, with another configuration.
		stream, err = l.look(ctx, want.Name)
	}
	switch code := wire.APIError(err).ErrorCode; {
	case err == nil:
		info := stream.CachedInfo()
		return info, layout.Fits(info.Config, want)
	case code == codeReplicasNotSupported:
		return nil, fmt.Errorf("%w: the NATS server is not in a cluster: set TURNLEDGER_REPLICAS=1", ErrStream)
	case code == wire.NoSuitablePeers:
		return nil, fmt.Errorf("%w: the NATS cluster has no room for %d replicas of %s: "+
			"start more servers, or set TURNLEDGER_REPLICAS: %w",
			ErrUnavailable, want.Replicas, want.Name, err)
	case code == codeSubjectsOverlap:
		return nil, fmt.Errorf("%w: another stream captures subjects of %s: "+
			"give Turnledger a NATS account of its own, and the TURNLEDGER_PARTITIONS that the log was made with",
			ErrStream, want.Name)
	default:
		return nil, Unavailable("make stream "+want.Name, err)
	}
}

// createStream makes a stream.
func (l *Log) createStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	return wire.Patiently(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return l.wire.JS.CreateStream(ctx, want)
	})
}

// look finds a stream.
func (l *Log) look(ctx context.Context, name string) (jetstream.Stream, error) {
	return wire.Patiently(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return l.wire.JS.Stream(ctx, name)
	})
}

// checkMark updates the sync mark of a stream on this process's own server. On an outside server it refuses a stream
// that is behind another process's gate, since the server acknowledges events there before they are durable.
func (l *Log) checkMark(ctx context.Context, info *jetstream.StreamInfo) error {
	have := info.Config.Metadata[layout.SyncKey]
	if l.cfg.Outside {
		if have == layout.SyncGate {
			return fmt.Errorf("%w: stream %s is on a server that acknowledges before the disk has an event, "+
				"and only its own process knows better: set TURNLEDGER_SYNC=always there",
				ErrStream, info.Config.Name)
		}
		return nil
	}
	want := l.layout().SyncMark()
	if have == want {
		return nil
	}
	cfg := info.Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	cfg.Metadata[layout.SyncKey] = want
	if _, err := l.wire.JS.UpdateStream(ctx, cfg); err != nil {
		return Unavailable("mark stream "+cfg.Name, err)
	}
	return nil
}

// layout describes how the log's streams must be configured.
func (l *Log) layout() layout.Log {
	return layout.Log{Partitions: l.cfg.Partitions, Replicas: l.cfg.Replicas, Gated: l.cfg.GateDir != "",
		Restoring: l.cfg.Restoring}
}
