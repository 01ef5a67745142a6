package redis

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// View is a recent-turns view in Redis. Safe for concurrent use.
type View struct {
	cfg           Config
	root, pointer string
	client        *client
	// generations are the generations in which the partitions were claimed.
	generations [events.Buckets]atomic.Pointer[string]
	chunk       int
	// only is the number of the view's generation; empty for the served one.
	only string
}

var (
	_ projections.View = (*View)(nil)
	_ recent.Reader    = (*View)(nil)
)

// chunkBytes bounds the part of a huge batch that one script carries. Only the last part moves the checkpoint. Each
// session in a part stores how far it is, so neither a read nor a retry sees half a batch.
const chunkBytes = 16 << 20

//go:embed claim.lua
var claimText string

//go:embed apply.lua
var applyText string

//go:embed load.lua
var loadText string

var (
	claimScript = rueidis.NewLuaScript(claimText)
	applyScript = rueidis.NewLuaScript(applyText)
	loadScript  = rueidis.NewLuaScript(loadText)
)

// New makes a view; it connects when it is first used. It returns all faults of the config at once.
func New(cfg Config) (*View, error) {
	cfg = cfg.withDefaults()
	opt, err := cfg.options()
	if err != nil {
		return nil, err
	}
	keys := "turnledger:{" + cfg.Prefix + "}:g"
	return &View{cfg: cfg, root: keys, pointer: keys + "en", client: newClient(opt), chunk: chunkBytes}, nil
}

// Admitted returns ErrDenied if Redis answers and refuses the credentials. It returns nil if Redis does not answer,
// since Redis may come later, and if the user may not ping, since that user may still be allowed all else.
func (v *View) Admitted(ctx context.Context) error {
	conn, err := v.client.connect(ctx)
	if err == nil {
		err = conn.Do(ctx, conn.B().Ping().Build()).Error()
	}
	if refusal, ok := rueidis.IsRedisErr(err); ok && slices.ContainsFunc([]string{"WRONGPASS ", "NOAUTH "},
		func(p string) bool { return strings.HasPrefix(refusal.Error(), p) }) {
		return fmt.Errorf("%w: %s", ErrDenied, refusal.Error())
	}
	return nil
}

// Close ends the connections. Running calls fail.
func (v *View) Close() { v.client.close() }

// Name of the projection.
func (v *View) Name() string { return recent.Name }

// Claim claims a partition in the served generation. It refuses a Redis that evicts keys with ErrEviction.
func (v *View) Claim(ctx context.Context, partition int) (cp projections.Checkpoint, err error) {
	defer projections.Wrap(&err, "claim partition %d in Redis", partition)
	if partition < 0 || partition >= len(v.generations) {
		return cp, errors.New("no such partition")
	}
	if err := v.client.evictsNothing(ctx); err != nil {
		return cp, err
	}
	answer, err := v.client.exec(ctx, claimScript, []string{v.pointer, v.store()},
		[]string{v.root, strconv.Itoa(partition), uuid.NewString(), v.only}).AsStrSlice()
	switch {
	case err != nil:
		return cp, err
	case len(answer) == 0:
		return cp, projections.ErrFenced
	case len(answer) != 6:
		return cp, ErrAnswer
	}
	if cp, err = checkpoint(answer[1:5]); err != nil {
		return cp, err
	}
	cp.Partition, cp.Store = partition, answer[5]
	if cp.Generation, err = strconv.ParseUint(answer[0], 10, 64); err != nil {
		return cp, ErrAnswer
	}
	v.generations[partition].Store(&answer[0])
	return cp, nil
}

// store returns the key that holds the store's own id.
func (v *View) store() string { return "turnledger:{" + v.cfg.Prefix + "}:store" }

// checkpoint reads epoch, sequence, the time of the stream, and event id.
func checkpoint(answer []string) (cp projections.Checkpoint, err error) {
	var errs [3]error
	cp.Epoch, errs[0] = strconv.ParseUint(answer[0], 10, 64)
	cp.Seq, errs[1] = strconv.ParseUint(answer[1], 10, 64)
	if answer[2] != "" {
		cp.Created, errs[2] = time.Parse(time.RFC3339Nano, answer[2])
	}
	cp.EventID = answer[3]
	if errors.Join(errs[:]...) != nil {
		return cp, ErrAnswer
	}
	return cp, nil
}

// Apply applies a batch. It applies a batch above 16 MiB in several steps, each of which can be repeated.
func (v *View) Apply(ctx context.Context, b projections.Batch) (err error) {
	defer projections.Wrap(&err, "apply to Redis after %s", b.From.Position())
	for groups := v.operations(b, time.Now().UnixMilli()); ; {
		n, size := 0, 0
		for n < len(groups) && (n == 0 || size+groups[n].bytes <= v.chunk) {
			size += groups[n].bytes
			n++
		}
		last := n == len(groups)
		keys, args, err := v.commit(b, last)
		if err != nil {
			return err
		}
		args = append(args, strconv.Itoa(v.cfg.Limits.MaxTurns))
		for _, g := range groups[:n] {
			args = g.appendTo(args)
		}
		if err := v.committed(ctx, applyScript, keys, args); err != nil || last {
			return err
		}
		groups = groups[n:]
	}
}

// commit returns the keys and the first arguments of a script. With move the script moves the checkpoint; without, it
// only checks that the batch begins there.
func (v *View) commit(b projections.Batch, move bool) (keys, args []string, err error) {
	if b.From.Partition < 0 || b.From.Partition >= len(v.generations) {
		return nil, nil, errors.New("no such partition")
	}
	generation := v.generations[b.From.Partition].Load()
	if generation == nil {
		return nil, nil, projections.ErrFenced
	}
	base := v.root + *generation + ":"
	to, created := "", ""
	if move {
		to, created = strconv.FormatUint(b.To.Seq, 10), b.To.Created.UTC().Format(time.RFC3339Nano)
	}
	return []string{base + "cp:" + strconv.Itoa(b.From.Partition), v.pointer}, []string{
		*generation, strconv.FormatUint(b.From.Seq, 10), strconv.FormatUint(b.From.Epoch,
			10), to, created, b.To.EventID, base,
	}, nil
}

func (v *View) committed(ctx context.Context, script *rueidis.Lua, keys, args []string) error {
	done, err := v.client.exec(ctx, script, keys, args).AsInt64()
	if err != nil {
		return err
	}
	if done == 0 {
		return projections.ErrFenced
	}
	return nil
}
