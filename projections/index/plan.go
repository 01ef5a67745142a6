package index

import (
	"context"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// planner turns batches of one partition into changes of objects. Not safe for concurrent use.
type planner struct {
	cfg       *Config
	partition int
	// questions of turns that have no answer yet, so that the log need not be read for them.
	questions *simplelru.LRU[uuid.UUID, *events.Question]
}

// heldQuestions bounds the questions that a planner holds.
const heldQuestions = 5000

func newPlanner(cfg *Config, partition int) *planner {
	held, err := simplelru.NewLRU[uuid.UUID, *events.Question](heldQuestions, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &planner{cfg, partition, held}
}

// changes are what a batch does to objects, each in its last state: an object that is written, or nil for one that is
// deleted. Order has each id once.
type changes struct {
	objects map[uuid.UUID]*Object
	order   []uuid.UUID
	// deleted is the sequence of the last event that deletes an object.
	deleted uint64
}

func (c *changes) put(o Object) { c.set(o.ID, &o) }

func (c *changes) drop(id uuid.UUID, at events.Position) {
	c.set(id, nil)
	c.deleted = max(c.deleted, at.Seq)
}

func (c *changes) set(id uuid.UUID, o *Object) {
	if c.objects == nil {
		c.objects = map[uuid.UUID]*Object{}
	}
	if _, known := c.objects[id]; !known {
		c.order = append(c.order, id)
	}
	c.objects[id] = o
}

// split returns what is written and what is deleted.
func (c *changes) split() (written []Object, deleted []uuid.UUID) {
	for _, id := range c.order {
		if o := c.objects[id]; o != nil {
			written = append(written, *o)
		} else {
			deleted = append(deleted, id)
		}
	}
	return written, deleted
}

// plan returns the changes of a run of events.
func (p *planner) plan(ctx context.Context, run []projections.Judged) (*changes, error) {
	out := &changes{}
	for i := range run {
		if err := p.apply(ctx, out, &run[i]); err != nil {
			return nil, failed(err, "event %s", run[i].Position)
		}
	}
	return out, nil
}

func (p *planner) apply(ctx context.Context, out *changes, e *projections.Judged) error {
	wanted, c := e.Head.Identity != "" || p.cfg.Anonymous, &e.Change
	switch c.Kind.Group() {
	case session.GroupText:
		for _, t := range c.Turns {
			out.drop(t.ID, e.Position)
		}
		if wanted {
			return p.text(ctx, out, e)
		}
	case session.GroupGone:
		if t := c.Left(); t != nil {
			p.questions.Remove(t.ID)
			out.drop(t.ID, e.Position)
			back := c.BackAgain() && e.Head.Identity != ""
			if back || wanted && t.Status == session.Finalized {
				return p.reread(ctx, out, e, func(of *session.Turn) bool {
					return of.ID == t.ID || back && of.Place > c.Silence
				})
			}
			return nil
		}
		p.drop(out, e)
	case session.GroupSessionGone:
		p.drop(out, e)
	case session.GroupHead:
		if c.Kind == session.Linked && !e.First {
			return p.backfill(ctx, out, e)
		}
	case session.GroupNone: // no text came or went
	}
	if c.BackAgain() && e.Head.Identity != "" {
		// The link had taken a gap for a silence. What moved the boundary back shows that there was none, or undoes it.
		return p.backfill(ctx, out, e)
	}
	return nil
}

// drop deletes the objects of turns that are gone.
func (p *planner) drop(out *changes, e *projections.Judged) {
	for _, t := range e.Change.Turns {
		p.questions.Remove(t.ID)
		out.drop(t.ID, e.Position)
	}
}

// text puts a turn that has its answer, and holds the question of one that waits for it.
func (p *planner) text(ctx context.Context, out *changes, e *projections.Judged) error {
	t, texts := e.Change.Turn, events.TextsOf(e.Fact)
	switch {
	case texts.Extension != nil:
		p.questions.Remove(t.ID)
		if t.Status != session.Finalized {
			return nil
		}
		return p.reread(ctx, out, e, func(of *session.Turn) bool { return of.ID == t.ID })
	case texts.Answer == nil:
		p.questions.Add(t.ID, t.Question)
	case texts.Question == nil:
		return p.answer(ctx, out, e)
	default:
		p.put(out, e, t)
	}
	return nil
}

// answer puts a turn that has its answer now.
func (p *planner) answer(ctx context.Context, out *changes, e *projections.Judged) error {
	t := *e.Change.Turn
	q, held := p.questions.Get(t.ID)
	if !held {
		return p.reread(ctx, out, e, func(of *session.Turn) bool { return of.ID == t.ID })
	}
	p.questions.Remove(t.ID)
	t.Question = q
	p.put(out, e, &t)
	return nil
}

// backfill puts the session's turns after its last silence, which are new to the index, or have an identity from now
// on.
func (p *planner) backfill(ctx context.Context, out *changes, e *projections.Judged) error {
	return p.reread(ctx, out, e, func(t *session.Turn) bool { return t.Place > e.Change.Silence })
}

// reread reads the session as it is at an event, and puts those of its turns that are chosen.
func (p *planner) reread(
	ctx context.Context, out *changes, e *projections.Judged, chosen func(*session.Turn) bool,
) error {
	s, err := p.cfg.session(ctx, e.SessionID, e.Position.Seq)
	if err != nil {
		return err
	}
	for _, t := range s.Turns {
		if chosen(t) {
			p.put(out, e, t)
		}
	}
	return nil
}

// session folds a session, with texts, up to a sequence of its partition.
func (c *Config) session(ctx context.Context, id string, upTo uint64) (*session.State, error) {
	s, err := session.Folded(id, c.Rules, c.Log.Session(ctx, id, 0, upTo))
	return s, failed(err, "read a session")
}

// put writes a turn, if it is finalized. A turn whose text has left the log is one that a later event redacts.
func (p *planner) put(out *changes, e *projections.Judged, t *session.Turn) {
	if o, ok := p.cfg.object(e.SessionID, e.Head.Identity, p.partition, t); ok {
		out.put(o)
	}
}

// object makes the object of a turn, and reports whether the turn has one.
func (c *Config) object(sessionID, identity string, partition int, t *session.Turn) (o Object, ok bool) {
	q, a := t.Question, t.Answer
	if t.Status != session.Finalized || q == nil || a == nil {
		return o, false
	}
	return Object{
		ID: t.ID, Session: sessionID, Identity: identity, Partition: partition, StartSeq: t.Started,
		Version: t.Version, CreatedAt: t.CreatedAt, PipelineName: q.PipelineName, Consultant: q.Consultant,
		Repository: q.Repository, Question: c.half(q.QuestionNeutral, q.QuestionTranslated),
		Answer: c.half(a.AnswerNeutral, a.AnswerTranslated),
	}, true
}
