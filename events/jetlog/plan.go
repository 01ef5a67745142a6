package jetlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Want is what an operator asks of the streams. A zero value is what they have.
type Want struct{ Partitions, Replicas int }

// Stream is a stream of the log as it stands, or one that a bucket of notes is kept in.
type Stream struct {
	Name string
	// Bucket: it holds no events, and shares only the log's number of replicas.
	Bucket        bool
	Created       time.Time
	Storage       string
	Replicas      int
	Leader        string // empty on a server of its own
	Followers     []Follower
	Events, Bytes uint64
	First, Last   uint64 // sequences
	Changes       []Change
	config        jetstream.StreamConfig
}

// Follower is another server that keeps a stream. Behind is how many operations it lacks.
type Follower struct {
	Server           string
	Current, Offline bool
	Behind           uint64
}

// Plan gives the streams, and for each what sets it apart from what is wanted.
func (l *Log) Plan(ctx context.Context, w Want) ([]Stream, error) {
	var out []Stream
	replicas := w.Replicas
	for k := range l.cfg.Partitions {
		s, err := l.look(ctx, l.partitions[k].name)
		if err != nil {
			return nil, err
		}
		want := l.streamConfig(k)
		want.Replicas = w.Replicas
		if want.Replicas == 0 {
			want.Replicas = s.Replicas
		}
		s.Changes = l.possible(differences(s.config, want))
		if w.Partitions != 0 && w.Partitions != l.cfg.Partitions {
			s.Changes = append(s.Changes, otherPartitions(strconv.Itoa(l.cfg.Partitions), strconv.Itoa(w.Partitions)))
		}
		replicas = want.Replicas
		out = append(out, s)
	}
	names := l.js.StreamNames(ctx)
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
			s.Changes = l.possible([]Change{{What: "replicas", Have: strconv.Itoa(s.Replicas), Want: strconv.Itoa(replicas),
				edit: func(c *jetstream.StreamConfig) { c.Replicas = replicas }}})
		}
		out = append(out, s)
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w: %w", ErrUnavailable, err)
	}
	slices.SortStableFunc(out, func(a, b Stream) int {
		if a.Bucket && b.Bucket {
			return strings.Compare(a.Name, b.Name)
		}
		return 0
	})
	return out, nil
}

// bucketPrefix is that of streams that buckets are kept in.
const bucketPrefix = "KV_"

// ours tells whether a bucket is Turnledger's: the notes, or an effect's.
func ours(name string) bool {
	bucket, is := strings.CutPrefix(name, bucketPrefix)
	return is && (bucket == notesBucket || strings.HasPrefix(bucket, "turnledger-"))
}

func (l *Log) look(ctx context.Context, name string) (Stream, error) {
	stream, err := l.js.Stream(ctx, name)
	if err != nil {
		return Stream{}, fmt.Errorf("look at %s: %w: %w", name, ErrUnavailable, err)
	}
	info := stream.CachedInfo()
	s := Stream{
		Name: name, Created: made(info.Created, info.Config.Metadata), Storage: strings.ToLower(info.Config.Storage.String()), Replicas: info.Config.Replicas,
		Events: info.State.Msgs, Bytes: info.State.Bytes, First: info.State.FirstSeq, Last: info.State.LastSeq, config: info.Config,
	}
	if c := info.Cluster; c != nil {
		s.Leader = c.Leader
		for _, r := range c.Replicas {
			s.Followers = append(s.Followers, Follower{Server: r.Name, Current: r.Current, Offline: r.Offline, Behind: r.Lag})
		}
	}
	return s, nil
}

// possible says of changes which this NATS can't make.
func (l *Log) possible(changes []Change) []Change {
	for i := range changes {
		c := &changes[i]
		if c.What == "replicas" && c.Want != "1" && l.nc.ConnectedClusterName() == "" {
			c.Refused, c.edit = "the NATS server is not in a cluster: set TURNLEDGER_NATS_URL to one", nil
		}
	}
	return changes
}

// Apply makes of a plan what can be made, while the log is in use, and gives the streams
// as they are then. New replicas go on to fill: Followers tell how far they are. It is
// ErrRefused, and nothing is changed, where other partitions are wanted.
func (l *Log) Apply(ctx context.Context, w Want) ([]Stream, error) {
	plan, err := l.Plan(ctx, w)
	if err != nil {
		return nil, err
	}
	for _, c := range plan[0].Changes {
		if c.What == "partitions" {
			return nil, fmt.Errorf("%w: %s", ErrRefused, c.Refused)
		}
	}
	for _, s := range plan {
		edited := false
		for _, c := range s.Changes {
			if c.edit != nil {
				c.edit(&s.config)
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
	_, err := l.js.UpdateStream(ctx, cfg)
	var said jetstream.JetStreamError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said) && said.APIError() != nil && said.APIError().Code < 500:
		return fmt.Errorf("%w: NATS does not change stream %s: %w", ErrRefused, cfg.Name, err)
	default:
		return fmt.Errorf("change stream %s: %w: %w", cfg.Name, ErrUnavailable, err)
	}
}
