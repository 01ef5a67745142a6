package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client"
)

// conversation is one of an export on its way into the log.
type conversation struct {
	line
	tree     *tree
	branches []*branch
	fresh    bool
	erased   bool
	// redacted are the messages of turns that were redacted in the log.
	redacted map[*node]bool
}

// importTrees imports conversations of other products. They are read and laid out some at once, and recorded one after
// the other in the order of their last activity, so that lists show them as they were.
func (im *importer) importTrees(ctx context.Context, files []string, f format) error {
	x, err := im.openExports(ctx, files, f)
	if err != nil {
		return err
	}
	defer x.close()
	im.Ordered(x.bytes)
	g, ctx := errgroup.WithContext(ctx)
	order := make(chan chan *conversation, im.Parallel)
	g.Go(func() error {
		defer close(order)
		for _, u := range x.units {
			// An older export of the conversation is recorded first.
			if err := im.settled(ctx, u.id); err != nil {
				return err
			}
			c := &conversation{line: line{where: u.where(), size: u.size(), session: u.id}}
			if u.id != "" {
				c.recorded = make(chan struct{})
				im.begin(&c.line)
			}
			ready := make(chan *conversation, 1)
			select {
			case order <- ready:
			case <-ctx.Done():
				return ctx.Err()
			}
			g.Go(func() error {
				defer func() { ready <- c }()
				c.err = im.prepare(ctx, x, u, c)
				return lost(ctx, c.err)
			})
		}
		return nil
	})
	g.Go(func() error {
		for ready := range order {
			c := <-ready
			if c.err == nil {
				c.err = im.write(ctx, c)
			}
			if err := lost(ctx, c.err); err != nil {
				return err
			}
			im.finish(c)
		}
		return nil
	})
	return g.Wait()
}

// lost returns an error after which the next conversation would fail, too.
func lost(ctx context.Context, err error) error {
	if _, is := errors.AsType[*unreachable](err); is {
		return err
	}
	return ctx.Err()
}

// begin notes that a line is under way.
func (im *importer) begin(l *line) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.underway[l.session] = l.recorded
}

// finish counts a conversation, and reports what was wrong with it.
func (im *importer) finish(c *conversation) {
	im.settle(&c.line)
	im.mu.Lock()
	defer im.mu.Unlock()
	if c.tree != nil {
		im.done.Messages += int64(len(c.tree.nodes))
		for _, n := range c.tree.nodes {
			if c.erased && n.dropped == "" {
				n.dropped = droppedErased
			}
			if n.dropped != "" {
				im.done.Dropped[n.dropped]++
			}
		}
		im.done.Conversations++
		im.done.Branches += int64(max(len(c.branches)-1, 0))
	}
	im.tell([]line{c.line})
}

// prepare reads a conversation, describes its session, and lays it out.
func (im *importer) prepare(ctx context.Context, x *exports, u unit, c *conversation) error {
	t, err := x.read(u)
	if err != nil {
		return err
	}
	c.tree = t
	if !slices.ContainsFunc(t.nodes, func(n *node) bool { return n.dropped == "" }) {
		return nil // nothing was said in it
	}
	s, err := im.describe(ctx, t.id, t.title)
	if errors.Is(err, errErased) {
		c.erased = true
		return nil
	}
	if err != nil {
		return err
	}
	c.fresh = !s.Duplicate && s.Turns == 0 && s.LastActiveAt.IsZero()
	c.branches, err = t.plan(func(session string) (standing, error) {
		if c.fresh {
			return nil, nil
		}
		return im.standing(ctx, session)
	})
	c.redacted = redactedIn(c.branches)
	return err
}

func redactedIn(branches []*branch) map[*node]bool {
	out := map[*node]bool{}
	for _, b := range branches {
		for _, t := range b.turns {
			if t.redacted() {
				for _, n := range t.nodes {
					out[n] = true
				}
			}
		}
	}
	return out
}

func (t *treeTurn) redacted() bool { return t.stands != nil && t.stands.Status == statusRedacted }

// errErased is a conversation, or a branch of one, that was erased. It stays erased.
var errErased = &client.Error{Code: "session_erased"}

// describe makes a session a conversation with its title.
func (im *importer) describe(ctx context.Context, session, title string) (client.Session, error) {
	d := client.Describe{SessionID: session, Kind: string(events.KindConversation), RequestID: requestPrefix[:6]}
	if title = cleanTitle(title); title != "" {
		d.Title, d.RequestID = &title, requestPrefix+(&node{id: title}).key()
	}
	s, err := im.store().Describe(ctx, d)
	if err != nil {
		return s, im.failed(ctx, err)
	}
	im.answered.Store(true)
	return s, nil
}

// cleanTitle returns a title as a session can have it.
func cleanTitle(title string) string {
	title = strings.ToValidUTF8(strings.ReplaceAll(title, "\x00", ""), "\uFFFD")
	if utf8.RuneCountInString(title) > events.MaxTitle {
		title = string([]rune(title)[:events.MaxTitle-1]) + "…"
	}
	return title
}

// turnsOfPage is how many turns of a session are asked for at once.
const turnsOfPage = 500

// standing reads the turns that a session has of its own. It fails with errErased for one that was erased.
func (im *importer) standing(ctx context.Context, session string) (standing, error) {
	out := standing{}
	for q := (client.TurnQuery{Status: "all", Limit: turnsOfPage}); ; {
		page, err := im.store().Turns(ctx, session, q)
		if errors.Is(err, &client.Error{Code: "session_not_found"}) {
			return out, nil
		}
		if errors.Is(err, errErased) {
			return nil, errErased
		}
		if err != nil {
			return nil, im.failed(ctx, err)
		}
		for _, t := range page.Turns {
			if !t.Inherited {
				out[t.RequestID] = t
			}
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return out, nil
		}
	}
}

// step is a turn of a branch that is to be recorded or compared.
type step struct {
	branch *branch
	turn   *treeTurn
	at     time.Time
}

// steps are the turns of all branches in the order in which they were, but none before one that it rests on.
func steps(branches []*branch) (all []step) {
	for _, b := range branches {
		at := time.Time{}
		if b.parent != nil {
			at = branches[0].turns[0].at // which a fork that shares nothing is made before
		}
		for n, t := range b.turns {
			if t.at.After(at) {
				at = t.at
			}
			if t.at = at; n >= b.shared {
				all = append(all, step{b, t, at})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b step) int { return a.at.Compare(b.at) })
	return all
}

// write records a conversation: the turns of one branch that follow one another by one call.
func (im *importer) write(ctx context.Context, c *conversation) error {
	if im.Identity != "" && !c.fresh && len(c.branches) > 0 {
		if _, err := im.store().LinkSession(ctx, im.Identity, c.tree.id); err != nil {
			return im.failed(ctx, err)
		}
	}
	all := steps(c.branches)
	im.count(func(s *Summary) { s.Turns += int64(len(all)) })
	for len(all) > 0 {
		b, n := all[0].branch, 1
		for n < len(all) && all[n].branch == b {
			n++
		}
		run := all[:n]
		all = all[n:]
		b.erased = b.erased || b.parent != nil && b.parent.erased
		err := im.writeRun(ctx, c, b, run)
		switch {
		case errors.Is(err, errErased) && b.parent == nil:
			c.erased = true
			return nil
		case errors.Is(err, errErased):
			b.erased = true
		case err != nil:
			return fmt.Errorf("session %s: %w", b.session, err)
		}
		if b.erased {
			for _, s := range run {
				s.drop(droppedErased)
			}
		}
	}
	return nil
}

// drop counts the messages of a turn that is not recorded.
func (s step) drop(why string) {
	for _, n := range s.turn.nodes[s.branch.fresh(s.turn):] {
		n.dropped = cmp.Or(n.dropped, why)
	}
}

// fresh returns how many messages at the beginning of a turn stand in another branch's turn, too.
func (b *branch) fresh(t *treeTurn) int {
	return max(slices.Index(t.nodes, b.path[b.own]), 0)
}

// writeRun records turns of one branch. A new one that would repeat words of a turn that was redacted is left out.
func (im *importer) writeRun(ctx context.Context, c *conversation, b *branch, run []step) error {
	if b.erased {
		return nil
	}
	run = slices.DeleteFunc(slices.Clone(run), func(s step) bool {
		again := s.turn.stands == nil && slices.ContainsFunc(s.turn.nodes, func(n *node) bool { return c.redacted[n] })
		if again {
			s.drop(droppedRedacted)
		}
		return again
	})
	news := slices.ContainsFunc(run, func(s step) bool { return s.turn.stands == nil })
	if b.parent != nil && !b.opened && news {
		if err := im.fork(ctx, c, b); err != nil {
			return err
		}
		b.opened = true
	}
	var turns []client.WholeTurn
	for _, s := range run {
		if s.turn.stands == nil {
			t := s.turn.WholeTurn
			if c.fresh && b.parent == nil {
				t.IdentityID = im.Identity
			}
			turns = append(turns, t)
		} else if err := im.stands(ctx, s.turn); err != nil {
			return err
		}
	}
	return im.recordNew(ctx, turns)
}

// fork makes the session of a branch. A shared turn that was redacted is left out with what follows it.
func (im *importer) fork(ctx context.Context, c *conversation, b *branch) error {
	f := client.Fork{Branch: b.session, RequestID: b.request, SessionID: c.tree.id}
	for n := range b.shared {
		if t := b.turns[b.shared-1-n]; !t.redacted() {
			f.SessionID, f.TurnID = t.SessionID, events.TurnID(t.SessionID, t.RequestID).String()
			break
		}
	}
	if first := c.branches[0].turns[0]; f.TurnID == "" && !first.redacted() {
		f.BeforeTurnID = events.TurnID(first.SessionID, first.RequestID).String()
	}
	if f.TurnID != "" || f.BeforeTurnID != "" {
		_, err := im.store().Fork(ctx, f)
		if err != nil && !errors.Is(err, &client.Error{Code: "session_exists"}) {
			return im.failed(ctx, err)
		}
	}
	_, err := im.describe(ctx, b.session, c.tree.title)
	return err
}

// stands compares a turn with what stands, which may get its answer.
func (im *importer) stands(ctx context.Context, t *treeTurn) error {
	was, there := t.stands, true
	asks := half{t.QuestionNeutral, t.QuestionTranslated, t.QuestionMessages}
	asked := half{was.QuestionNeutral, was.QuestionTranslated, was.QuestionMessages}
	switch {
	case was.Status == statusRedacted || was.ReplacedByTurnID != "": // it stays as it is
	case !asked.cut() && !asks.same(asked):
		return errOtherQuestion
	case t.Answer == nil:
	case was.Status == statusPending:
		var err error
		if there, err = im.compared(ctx, t.WholeTurn); err != nil {
			return err
		}
	default:
		says := half{t.AnswerNeutral, t.AnswerTranslated, t.AnswerMessages}
		said := half{was.AnswerNeutral, was.AnswerTranslated, was.AnswerMessages}
		if !said.cut() && !says.same(said) {
			return errOtherAnswer
		}
	}
	im.stood(there)
	return nil
}

// recordNew records turns of one session: by one call those that a server takes, and each of the others by itself, so
// that nothing is recorded behind one that is refused.
func (im *importer) recordNew(ctx context.Context, turns []client.WholeTurn) error {
	for len(turns) > 0 {
		n := slices.IndexFunc(turns, refusable)
		if n == 0 {
			there, err := im.turn(ctx, turns[0])
			if err != nil {
				return err
			}
			im.stood(there)
			turns = turns[1:]
			continue
		}
		if n < 0 {
			n = len(turns)
		}
		if err := im.recordAll(ctx, turns[:n]); err != nil {
			return err
		}
		turns = turns[n:]
	}
	return nil
}

// recordAll records turns by one call.
func (im *importer) recordAll(ctx context.Context, turns []client.WholeTurn) error {
	done, err := im.store().RecordNewTurns(ctx, turns)
	for i, r := range done {
		switch {
		case r.Err != nil:
			err = cmp.Or(err, r.Err)
		case r.Status == http.StatusCreated:
			im.answered.Store(true)
			im.drop(r.DroppedMetadata)
			im.stood(false)
		case r.Status == http.StatusOK: // meanwhile another import has recorded it
			there, err := im.compared(ctx, turns[i])
			if err != nil {
				return err
			}
			im.stood(there)
		}
	}
	if err != nil {
		return im.failed(ctx, err)
	}
	return nil
}

// stood counts a turn that was there, or was recorded.
func (im *importer) stood(there bool) {
	im.count(func(s *Summary) {
		if there {
			s.Existed++
		} else {
			s.Recorded++
		}
	})
}
