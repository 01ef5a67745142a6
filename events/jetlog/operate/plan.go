package operate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// Want is the configuration that an operator wants. A zero field keeps the streams' present value.
type Want struct{ Partitions, Replicas int }

// Change is a difference between a stream and its wanted configuration.
type Change = layout.Change

// Stream is the present state of a stream of the log, or of a bucket of notes.
type Stream struct {
	Name string
	// Bucket: the stream holds no events, and shares only the log's number of replicas.
	Bucket        bool
	Created       time.Time
	Storage       string
	Replicas      int
	Leader        string // empty without a cluster
	Followers     []Replica
	Events, Bytes uint64
	First, Last   uint64 // sequences
	Changes       []Change
	config        jetstream.StreamConfig
}

// Replica is another server that keeps a replica of a stream. Behind is the number of operations that it lacks.
type Replica struct {
	Server  string `json:"server"`
	Current bool   `json:"current"`
	Offline bool   `json:"offline"`
	Behind  uint64 `json:"behind" doc:"Operations that it lacks"`
}

// Plan returns the streams, each with its differences from the wanted configuration.
func (l *Log) Plan(ctx context.Context, w Want) ([]Stream, error) {
	var out []Stream
	replicas := w.Replicas
	for k := range l.inside.Layout.Partitions {
		s, err := l.look(ctx, events.StreamName(k))
		if err != nil {
			return nil, err
		}
		want := l.inside.Layout.Stream(k)
		want.Replicas = w.Replicas
		if want.Replicas == 0 {
			want.Replicas = s.Replicas
		}
		s.Changes = l.possible(layout.Differences(s.config, want))
		if w.Partitions != 0 && w.Partitions != l.inside.Layout.Partitions {
			have, wanted := strconv.Itoa(l.inside.Layout.Partitions), strconv.Itoa(w.Partitions)
			s.Changes = append(s.Changes, layout.OtherPartitions(have, wanted))
		}
		replicas = want.Replicas
		out = append(out, s)
	}
	buckets, err := l.planBuckets(ctx, replicas)
	if err != nil {
		return nil, err
	}
	return append(out, buckets...), nil
}

// planBuckets returns the streams of the buckets, by name.
func (l *Log) planBuckets(ctx context.Context, replicas int) (out []Stream, err error) {
	names := l.inside.Wire.JS.StreamNames(ctx)
	for name := range names.Name() {
		if !ours(name) {
			continue
		}
		s, err := l.look(ctx, name)
		if err != nil {
			return nil, err
		}
		s.Bucket = true
		if s.Replicas != replicas {
			s.Changes = l.possible([]Change{{
				What: "replicas", Have: strconv.Itoa(s.Replicas), Want: strconv.Itoa(replicas),
				Edit: func(c *jetstream.StreamConfig) { c.Replicas = replicas },
			}})
		}
		out = append(out, s)
	}
	if err := names.Err(); err != nil {
		return nil, jetlog.Unavailable("list streams", err)
	}
	slices.SortFunc(out, func(a, b Stream) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// bucketPrefix begins the name of a stream that keeps a bucket.
const bucketPrefix = "KV_"

// ours reports whether a stream keeps a bucket of Turnledger's: the notes, or an effect's.
func ours(name string) bool {
	bucket, is := strings.CutPrefix(name, bucketPrefix)
	return is && (bucket == jetlog.NotesBucket || strings.HasPrefix(bucket, "turnledger-"))
}

func (l *Log) look(ctx context.Context, name string) (Stream, error) {
	stream, err := l.inside.Wire.JS.Stream(ctx, name)
	if err != nil {
		return Stream{}, jetlog.Unavailable("look at "+name, err)
	}
	info := stream.CachedInfo()
	s := Stream{
		Name: name, Created: layout.Made(info.Created, info.Config.Metadata),
		Storage: strings.ToLower(info.Config.Storage.String()), Replicas: info.Config.Replicas,
		Events: info.State.Msgs, Bytes: info.State.Bytes,
		First: info.State.FirstSeq, Last: info.State.LastSeq, config: info.Config,
	}
	if c := info.Cluster; c != nil {
		s.Leader = c.Leader
		for _, r := range c.Replicas {
			f := Replica{Server: r.Name, Current: r.Current, Offline: r.Offline, Behind: r.Lag}
			s.Followers = append(s.Followers, f)
		}
	}
	return s, nil
}

// possible marks as refused the changes that the connected NATS server can't make.
func (l *Log) possible(changes []Change) []Change {
	for i := range changes {
		c := &changes[i]
		if c.What == "replicas" && c.Want != "1" && l.inside.Wire.NC.ConnectedClusterName() == "" {
			c.Refused, c.Edit = "the NATS server is not in a cluster: set TURNLEDGER_NATS_URL to one", nil
		}
	}
	return changes
}

// Apply makes the possible changes of a plan while the log is in use, and returns the resulting streams. New replicas
// fill afterwards: Followers show their progress. If another number of partitions is wanted, Apply changes nothing and
// fails with jetlog.ErrRefused.
func (l *Log) Apply(ctx context.Context, w Want) ([]Stream, error) {
	plan, err := l.Plan(ctx, w)
	if err != nil {
		return nil, err
	}
	for _, c := range plan[0].Changes {
		if c.What == "partitions" {
			return nil, fmt.Errorf("%w: %s", jetlog.ErrRefused, c.Refused)
		}
	}
	for _, s := range plan {
		edited := false
		for _, c := range s.Changes {
			if c.Edit != nil {
				c.Edit(&s.config)
				edited = true
			}
		}
		if !edited {
			continue
		}
		if err := l.update(ctx, s.config); err != nil {
			return nil, err
		}
	}
	return l.Plan(ctx, w)
}

func (l *Log) update(ctx context.Context, cfg jetstream.StreamConfig) error {
	_, err := wire.Patiently(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return l.inside.Wire.JS.UpdateStream(ctx, cfg)
	})
	switch code := wire.APIError(err).Code; {
	case err == nil:
		return nil
	case code != 0 && code < 500:
		return fmt.Errorf("%w: NATS does not change stream %s: %w", jetlog.ErrRefused, cfg.Name, err)
	default:
		return jetlog.Unavailable("change stream "+cfg.Name, err)
	}
}
