package follower

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

// part follows one partition.
type part struct {
	*Follower
	number int
	// started is closed once the decider gets all that comes, and folded is what it has.
	started chan struct{}
	begin   sync.Once
	folded  jetlog.Watermark
	// read is the newest sequence that stage 1 has read.
	read atomic.Uint64

	raw    *ring[jetlog.Message]
	judged *ring[projections.Judged]

	mu sync.Mutex
	// wanted counts the readers; changed says that it did.
	wanted  int
	changed chan struct{}
	// pending is what stage 1 has read and is not shown yet. The part holds it from the budget.
	pending []chunk[jetlog.Message]
	bytes   atomic.Int64
	arrived chan struct{}
	// lead is the source that fills the judged ring, and end ends that. judges: stage 2 runs, and takes one.
	lead   chan leading
	end    context.CancelFunc
	judges bool
}

// leading is a source that judges for all subscribers.
type leading struct {
	ctx  context.Context //nolint:containedctx // it ends with the last subscriber
	from uint64
	source[projections.Judged]
}

// judgedAtOnce bounds what is judged for all before any of it is shown.
const judgedAtOnce = 256

func newPart(f *Follower, number int) *part {
	p := &part{
		Follower: f, number: number, started: make(chan struct{}), changed: make(chan struct{}, 1),
		arrived: make(chan struct{}, 1), lead: make(chan leading, 1),
	}
	p.raw = newRing(f.budget, seqOfMessage, messageContinues, nil)
	p.judged = newRing(f.budget, seqOfJudged, judgedContinues, p.unjudged)
	f.budget.add(p)
	return p
}

// run follows the partition, while there is a decider or a reader, until ctx ends.
func (p *part) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if !p.await(ctx, func(wanted bool) bool { return wanted }) {
			return nil
		}
		if err := p.once(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await waits until enough is true of whether anybody wants the events; it returns false if ctx ends first.
func (p *part) await(ctx context.Context, enough func(wanted bool) bool) bool {
	for {
		p.mu.Lock()
		wanted := p.wanted > 0 || p.decider != nil
		p.mu.Unlock()
		if enough(wanted) {
			return true
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			return false
		}
	}
}

// enter notes a subscriber more.
func (p *part) enter() {
	p.mu.Lock()
	p.wanted++
	p.mu.Unlock()
	wake(p.changed)
}

// leave notes a subscriber less.
func (p *part) leave() {
	p.mu.Lock()
	p.wanted--
	p.mu.Unlock()
	wake(p.changed)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// once follows the partition until nobody wants that any more.
func (p *part) once(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p.judge(true)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		p.await(ctx, func(wanted bool) bool { return !wanted })
		stop()
		return nil
	})
	g.Go(func() error { return p.stage1(ctx) })
	g.Go(func() error { p.show(ctx); return nil })
	g.Go(func() error { p.stage2(ctx); return nil })
	err := g.Wait()
	p.raw.stop(err)
	p.judge(false)
	p.stopJudging()
	p.judged.stop(err)
	select {
	case l := <-p.lead:
		l.close()
	default:
	}
	for _, some := p.oldestPending(math.MaxUint64); some; _, some = p.oldestPending(math.MaxUint64) {
	}
	return err
}

// stage1 reads the partition.
func (p *part) stage1(ctx context.Context) error {
	r := Following{
		Partition: p.number, Watermark: &p.folded, Pause: p.cfg.Pause,
		Begin: func(ctx context.Context) (uint64, error) {
			head, err := p.log.Head(ctx, p.number)
			return head.Seq, err
		},
		Read: func(_ context.Context, batch []jetlog.Message) error { p.take(batch); return nil },
		Warn: func(err error) {
			p.cfg.Logger.Warn("the log is followed anew", "partition", p.number, "position", p.folded.At(), "err", err)
		},
	}
	return r.run(ctx, func(after uint64) *Subscription[jetlog.Message] {
		p.read.Store(after)
		p.raw.start(after)
		p.begin.Do(func() { close(p.started) })
		return &Subscription[jetlog.Message]{source: &tailSource{
			log: p.log, partition: p.number, after: after, opts: jetlog.TailOptions{Ungated: true}, patient: true,
		}}
	})
}

// take takes events in: the decider has them before anybody else.
func (p *part) take(batch []jetlog.Message) {
	last := batch[len(batch)-1].Position.Seq
	if p.decider != nil {
		for i := range batch {
			p.decider(&batch[i])
		}
	}
	after := p.read.Load()
	// An event may be erased once it is folded: whoever comes then is not given it.
	p.read.Store(last)
	p.folded.Advance(last)
	if !p.raw.held(last) {
		return
	}
	c := chunk[jetlog.Message]{events: batch, after: after, last: last}
	for i := range batch {
		batch[i].Decode()
		c.bytes += batch[i].Size()
	}
	p.mu.Lock()
	p.pending = append(p.pending, c)
	p.hold(c.bytes)
	p.mu.Unlock()
	wake(p.arrived)
	p.budget.enforce()
}

func (p *part) hold(bytes int) {
	p.bytes.Add(int64(bytes))
	p.budget.grow(bytes)
}

// size implements holder.
func (p *part) size() int64 { return p.bytes.Load() }

// shed implements holder. What the disk is too slow for is read from the log by those who need it: in place of the
// oldest chunk, an empty one has the ring begin anew behind it.
func (p *part) shed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.pending, func(c chunk[jetlog.Message]) bool { return c.bytes > 0 })
	if i < 0 {
		return false
	}
	c := p.pending[i]
	p.hold(-c.bytes)
	p.pending = slices.Delete(p.pending, 0, i)
	p.pending[0] = chunk[jetlog.Message]{after: c.last, last: c.last}
	return true
}

// oldestPending takes the oldest chunk from those that are pending, if it ends at a sequence or before.
func (p *part) oldestPending(upTo uint64) (c chunk[jetlog.Message], some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 || p.pending[0].last > upTo {
		return c, false
	}
	c = p.pending[0]
	p.pending = slices.Delete(p.pending, 0, 1)
	p.hold(-c.bytes)
	return c, true
}

// newestPending returns the last sequence of what is pending.
func (p *part) newestPending() (seq uint64, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 {
		return 0, false
	}
	return p.pending[len(p.pending)-1].last, true
}

// show puts what stage 1 has read into the ring once it is durable. It leads the gate for that, so that an event is
// shown though no writer waits for it.
func (p *part) show(ctx context.Context) {
	for {
		select {
		case <-p.arrived:
		case <-ctx.Done():
			return
		}
		seq, some := p.newestPending()
		if !some {
			continue
		}
		last := at(p.number, seq)
		for err := p.log.Durable(ctx, last); err != nil; err = p.log.Durable(ctx, last) {
			if ctx.Err() != nil {
				return
			}
			p.cfg.Logger.Warn("events are not shown before they are durable", "position", last, "err", err)
			pause.For(ctx, time.Second)
		}
		for c, some := p.oldestPending(seq); some; c, some = p.oldestPending(seq) {
			p.raw.publish(c)
		}
	}
}

// stage2 judges for the subscribers, with the source of the subscriber that came first.
func (p *part) stage2(ctx context.Context) {
	for {
		select {
		case l := <-p.lead:
			p.judgeAll(ctx, l)
		case <-ctx.Done():
			return
		}
	}
}

// judgeAll fills the judged ring from a source until nobody reads from it.
func (p *part) judgeAll(ctx context.Context, l leading) {
	defer l.close()
	defer context.AfterFunc(ctx, p.stopJudging)()
	for after := l.from; l.ctx.Err() == nil; {
		batch, upTo, err := l.next(l.ctx)
		if upTo > after {
			p.judged.publish(chunk[projections.Judged]{
				events: batch, after: after, last: upTo, bytes: weightOf(batch),
			})
			after = upTo
		}
		switch {
		case err == nil, l.ctx.Err() != nil:
		case errors.Is(err, jetlog.ErrStream):
			p.judged.stop(err)
			return
		default:
			p.cfg.Logger.Warn("events wait for their verdict", "partition", p.number, "position", after, "err", err)
			pause.For(l.ctx, p.cfg.Pause)
		}
	}
}

func (p *part) judge(judges bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judges = judges
}

// leadWith makes a subscriber's own source the one that judges for all, unless there is one, or nobody takes it.
func (p *part) leadWith(own source[projections.Judged], from uint64) *hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.judges || p.end != nil || len(p.lead) > 0 {
		return nil
	}
	hold := p.judged.startHeld(from)
	if hold == nil {
		return nil
	}
	if s, ok := own.(*judgeSource); ok {
		s.most = judgedAtOnce
	}
	//nolint:forbidigo // the judging serves all subscribers, and ends with the last of them
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	p.lead <- leading{ctx, from, own}
	return hold
}

// unjudged ends the judging that nobody needs any more.
func (p *part) unjudged() {
	p.judged.stop(nil)
	p.stopJudging()
}

func (p *part) stopJudging() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		p.end()
	}
	p.end = nil
}
