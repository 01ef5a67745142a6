package redis

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

var (
	//go:embed begin.lua
	beginText string
	//go:embed swap.lua
	swapText string

	beginScript = rueidis.NewLuaScript(beginText)
	swapScript  = rueidis.NewLuaScript(swapText)
	// leaveScript ends the filling of a generation.
	leaveScript = rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	// servedScript returns the pointers: the generation that is served, and the one that is filled.
	servedScript = rueidis.NewLuaScript(`return {redis.call('GET', KEYS[1]) or '1', redis.call('GET', KEYS[2]) or ''}`)
	// checkpointsScript returns the served generation, the store's id, and the number and checkpoint of each partition
	// that has a checkpoint; it claims nothing. A Redis user that may not write gets no id.
	checkpointsScript = rueidis.NewLuaScript(`local g = redis.call('GET', KEYS[1]) or '1'
		local store = redis.call('GET', KEYS[2])
		if not store then
			redis.pcall('SET', KEYS[2], ARGV[3], 'NX')
			store = redis.call('GET', KEYS[2]) or ''
		end
		local out = {g, store}
		for k = 0, ARGV[2] - 1 do
			local v = redis.call('HMGET', ARGV[1] .. g .. ':cp:' .. k, 'epoch', 'seq', 'created', 'id')
			if v[1] then
				out[#out + 1] = tostring(k)
				for i = 1, 4 do out[#out + 1] = v[i] end
			end
		end
		return out`)
)

var (
	_ projections.Rebuildable = (*View)(nil)
	_ projections.Generation  = (*generation)(nil)
)

func (v *View) next() string { return strings.TrimSuffix(v.root, "g") + "next" }

// numbers returns the generation that is served, and the one that is being filled.
func (v *View) numbers(ctx context.Context) (served, next string, err error) {
	answer, err := v.client.exec(ctx, servedScript, []string{v.pointer, v.next()}, nil).AsStrSlice()
	if err != nil {
		return "", "", err
	}
	if len(answer) != 2 {
		return "", "", ErrAnswer
	}
	return answer[0], answer[1], nil
}

// Served implements projections.View. It returns the checkpoints of all partitions, whichever process has claimed them,
// since a process that only reads, or rebuilds beside other runners, needs them all.
func (v *View) Served(ctx context.Context) (out projections.Served, err error) {
	defer projections.Wrap(&err, "read the checkpoints in Redis")
	answer, err := v.client.exec(ctx, checkpointsScript, []string{v.pointer, v.store()},
		[]string{v.root, strconv.Itoa(len(v.generations)), uuid.NewString()}).AsStrSlice()
	if err == nil && len(answer)%5 != 2 {
		err = ErrAnswer
	}
	if err != nil {
		return out, err
	}
	out.Store = answer[1]
	out.Generation, err = strconv.ParseUint(answer[0], 10, 64)
	for one := range slices.Chunk(answer[2:], 5) {
		cp, wrong := checkpoint(one[1:])
		k, none := strconv.Atoi(one[0])
		cp.Partition, cp.Store, cp.Generation = k, out.Store, out.Generation
		out.At, err = append(out.At, cp), errors.Join(err, wrong, none)
	}
	if err != nil {
		return projections.Served{}, ErrAnswer
	}
	return out, nil
}

// NewGeneration implements projections.Rebuildable. The Redis needs memory for both generations until the swap.
func (v *View) NewGeneration(ctx context.Context) (_ projections.Generation, err error) {
	defer projections.Wrap(&err, "begin a generation in Redis")
	if err := v.client.evictsNothing(ctx); err != nil {
		return nil, err
	}
	keys := []string{v.pointer, v.next(), strings.TrimSuffix(v.root, "g") + "last"}
	number, err := v.client.exec(ctx, beginScript, keys, nil).ToString()
	if err != nil {
		return nil, err
	}
	filled := &View{cfg: v.cfg, root: v.root, pointer: v.next(), client: v.client, chunk: v.chunk, only: number}
	g := &generation{View: filled, served: v, number: number}
	if g.n, err = strconv.ParseUint(number, 10, 64); err == nil {
		err = v.sweep(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, g.leave(ctx))
	}
	return g, nil
}

// generation is a view of the generation that a rebuild fills. Its pointer is the key that names that generation.
type generation struct {
	*View
	served *View
	number string
	n      uint64
}

// Number implements projections.Generation.
func (g *generation) Number() uint64 { return g.n }

func (g *generation) leave(ctx context.Context) error {
	return g.client.exec(ctx, leaveScript, []string{g.pointer}, []string{g.number}).Error()
}

// Swap implements projections.Generation.
func (g *generation) Swap(ctx context.Context, check projections.SwapCheck) error {
	args := []string{g.number, g.root, "0"}
	if check == projections.PassFormer {
		args[2] = "1"
	}
	for k := range g.generations {
		if g.generations[k].Load() != nil {
			args = append(args, strconv.Itoa(k))
		}
	}
	done, err := g.client.exec(ctx, swapScript, []string{g.served.pointer, g.pointer}, args).AsInt64()
	switch {
	case err != nil:
		return fmt.Errorf("swap the generations in Redis: %w", err)
	case done < 0:
		return fmt.Errorf("swap the generations in Redis: %w", projections.ErrFenced)
	case done == 0:
		return projections.ErrNotCaughtUp
	}
	return nil
}

// Drop implements projections.Generation.
func (g *generation) Drop(ctx context.Context) (err error) {
	defer projections.Wrap(&err, "drop a generation in Redis")
	return errors.Join(g.leave(ctx), g.served.sweep(ctx))
}

// sweep removes all generations but the served one and the one being filled.
func (v *View) sweep(ctx context.Context) error {
	served, next, err := v.numbers(ctx)
	if err != nil {
		return err
	}
	return v.client.scan(ctx, globbed(v.root)+"*", func(keys []string) error {
		var gone []string
		for _, key := range keys {
			number, _, ok := strings.Cut(strings.TrimPrefix(key, v.root), ":")
			if _, err := strconv.ParseUint(number, 10, 64); ok && err == nil && number != served && number != next {
				gone = append(gone, key)
			}
		}
		return v.client.unlink(ctx, gone)
	})
}

// Sessions returns the ids of the sessions that the served generation holds in a partition, in no order. An id may come
// twice. Sessions that come or go meanwhile may be missing.
func (v *View) Sessions(
	ctx context.Context, partition, partitions int, take func(sessionID string) error,
) (err error) {
	defer projections.Wrap(&err, "list the sessions in Redis")
	served, _, err := v.numbers(ctx)
	if err != nil {
		return err
	}
	heads := v.root + served + ":h:"
	return v.client.scan(ctx, globbed(heads)+"*", func(keys []string) error {
		for _, key := range keys {
			id := strings.TrimPrefix(key, heads)
			if events.Partition(id, partitions) != partition {
				continue
			}
			if err := take(id); err != nil {
				return err
			}
		}
		return nil
	})
}

// globbed escapes the characters that have a meaning in a SCAN pattern.
func globbed(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// NewReference implements projections.View.
func (v *View) NewReference(_ context.Context, partitions int) (projections.Reference, error) {
	return recent.NewReference(patient{v}, v.cfg.Limits, time.Now, partitions), nil
}

// patient is a view for callers that wait for a slow Redis instead of failing.
type patient struct{ *View }

// Load implements recent.Loader.
func (p patient) Load(ctx context.Context, sessionID string, partition, shown int) (recent.Snapshot, error) {
	return p.load(sessionID, partition, shown, func(keys, args []string) rueidis.RedisResult {
		return p.client.exec(ctx, loadScript, keys, args)
	})
}
