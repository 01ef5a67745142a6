package write

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

const (
	// runTurns and runBytes bound what one append takes of one session's turns.
	runTurns, runBytes = 250, 1 << 20
	// sessionsAtOnce bounds the sessions that one call of StartTurns writes to at the same time.
	sessionsAtOnce = 512
)

// StartTurns implements services.TurnWriter. Sessions go in parallel; the turns of one session go into the log with as
// few appends as may be.
func (s *Service) StartTurns(ctx context.Context, commands []decide.Start) []services.TurnOutcome {
	out := make([]services.TurnOutcome, len(commands))
	var order []string
	sessions := map[string][]*line{}
	for i, c := range commands {
		normal, dropped, err := s.cfg.Policy.NormalStart(bound(ctx, c))
		if err != nil {
			out[i].Err = err
			continue
		}
		if sessions[c.SessionID] == nil {
			order = append(order, c.SessionID)
		}
		sessions[c.SessionID] = append(sessions[c.SessionID], &line{Start: normal, dropped: dropped, out: &out[i]})
	}
	for _, id := range s.unseen(ctx, order) {
		sessions[id][0].unseen = true
	}
	var all sync.WaitGroup
	places := make(chan struct{}, sessionsAtOnce)
	for _, id := range order {
		places <- struct{}{}
		all.Go(func() {
			s.startInOrder(ctx, id, sessions[id])
			<-places
		})
	}
	all.Wait()
	return out
}

// unseen returns the sessions that neither the service holds nor the log seems to know. Asked for together they cost
// little; one session asks for itself.
func (s *Service) unseen(ctx context.Context, sessions []string) []string {
	var others []string
	for _, id := range sessions {
		if _, held := s.sessions.GetIfPresent(id); !held {
			others = append(others, id)
		}
	}
	if len(others) < 2 {
		return nil
	}
	return s.log.Unseen(ctx, others)
}

// line is one command of StartTurns on its way.
type line struct {
	decide.Start
	dropped []string
	// unseen: of the first line of a session, as of a writing.
	unseen bool
	// decided is the last decision of the command, and appended what an earlier one had to append.
	decided  decide.Decision
	appended []events.Fact
	out      *services.TurnOutcome
}

func (l *line) id() uuid.UUID { return events.TurnID(l.SessionID, l.RequestID) }

// startInOrder records the turns of one session. It ends with the first error that leaves the outcome open.
func (s *Service) startInOrder(ctx context.Context, session string, lines []*line) {
	for len(lines) > 0 {
		n := run(lines)
		err := s.startRun(ctx, session, lines[:n])
		if n > 1 && errors.Is(err, jetlog.ErrTooLarge) {
			// One event is too large for the log, which took none of them.
			n = 1
			err = s.startRun(ctx, session, lines[:n])
		}
		_, refused := errors.AsType[*decide.Refusal](err)
		switch {
		case err == nil:
		case refused, errors.Is(err, jetlog.ErrTooLarge):
			fail(lines[:n], err)
		default:
			fail(lines, err)
			return
		}
		lines = lines[n:]
	}
}

func fail(lines []*line, err error) {
	for _, l := range lines {
		l.out.Err = err
	}
}

// run returns how many of the lines may go into the log with one append: their decisions do not depend on each other.
func run(lines []*line) (n int) {
	size := 0
	turns := map[uuid.UUID]bool{}
	for _, l := range lines {
		size += l.size()
		if n > 0 && (n == runTurns || size > runBytes || l.IdentityID != lines[0].IdentityID || turns[l.id()]) {
			break
		}
		turns[l.id()] = true
		n++
	}
	return n
}

func (l *line) size() int {
	n := size(&l.Question)
	if a := l.Answer; a != nil {
		n += len(a.AnswerNeutral) + len(a.AnswerTranslated) + len(a.AnswerMessages)
	}
	return n
}

// startRun records the turns of one run. An error is that of all its lines.
func (s *Service) startRun(ctx context.Context, sessionID string, lines []*line) error {
	w := s.writing(sessionID)
	w.unseen = lines[0].unseen
	if identity := lines[0].IdentityID; identity != "" {
		if err := w.mayBegin(ctx, identity); err != nil {
			return err
		}
	}
	first := lines[0]
	decision := func(st *session.State) decide.Decision { return decideRun(st, lines) }
	rooted := func(st *session.State) decide.Decision { return w.atRoot(st, first.IdentityID, decision) }
	defer w.pin()()
	v, err := w.run(ctx, w.beginning, rooted)
	if err != nil {
		if again, err := w.linkedAtRoot(ctx, err, first.IdentityID, first.SourceHash); !again {
			return err
		}
		if v, err = w.run(ctx, w.deciding, rooted); err != nil {
			return err
		}
	}
	if err := w.linksBranches(ctx, first.IdentityID); err != nil {
		return err
	}
	recorded := false
	for _, l := range lines {
		if w.counted(l) {
			continue
		}
		if l.out.Err = l.decided.Err; l.out.Err == nil {
			l.out.Turn = w.answerTo(l, v.head)
		} else if !recorded && len(l.decided.Facts) > 0 {
			// All lines of a run name the same identity, so they are refused for the same link.
			if err := w.record(ctx, l.decided.Facts); err != nil {
				return errors.Join(l.decided.Err, err)
			}
			recorded = true
		}
	}
	return nil
}

// decideRun decides each line by itself, and joins what they append.
func decideRun(st *session.State, lines []*line) (all decide.Decision) {
	for _, l := range lines {
		d := l.Start.On(st)
		if d.Turn != nil {
			own := *d.Turn
			d.Turn = &own
		}
		if l.decided = d; d.Err != nil {
			continue
		}
		if len(d.Facts) > 0 {
			l.appended = d.Facts
		}
		all.Expect = all.Expect || d.Expect
		for _, f := range d.Facts {
			if _, link := f.(*events.SessionLinked); link && len(all.Facts) > 0 {
				continue // an earlier line of the run links the session
			}
			all.Facts = append(all.Facts, f)
		}
	}
	return all
}

// counted reports whether a line that is refused now had its turn recorded by this write, and answers it with that: the
// event counted when it was written (ownVerdict).
func (w *writing) counted(l *line) bool {
	if l.decided.Err == nil || len(l.appended) == 0 || w.own.afterErasure {
		return false
	}
	at := w.own.at(l.appended[len(l.appended)-1])
	o, counted := w.outcome(at)
	if !counted || o.turn == nil {
		return false
	}
	l.out.Turn = services.Turn{
		Turn: *o.turn, SessionID: w.id, IdentityID: o.head.Identity,
		Position: events.Position{Partition: w.partition, Seq: at},
		Existed:  !w.own.covers(o.turn.Started), DroppedMetadata: l.dropped,
	}
	return true
}

// answerTo returns the turn that a line came to, without its texts.
func (w *writing) answerTo(l *line, head session.Head) services.Turn {
	d := l.decided
	return services.Turn{
		Turn: *d.Turn, SessionID: w.id, IdentityID: head.Identity,
		Position:  events.Position{Partition: w.partition, Seq: d.RestsOn},
		Duplicate: !w.own.covers(d.StatedAt), Existed: !w.own.covers(d.Turn.Started), DroppedMetadata: l.dropped,
	}
}
