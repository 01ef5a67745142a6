package history

import (
	"cmp"
	"context"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// TurnsBeside implements services.TurnLookup.
func (s *Service) TurnsBeside(ctx context.Context, ask services.BesideAsk) (services.TurnsBeside, bool, error) {
	if err := conversation.ValidIDs("session_id", ask.SessionID); err != nil {
		return services.TurnsBeside{}, false, err
	}
	b := beside{BesideAsk: ask}
	line, err := s.line(ctx, ask)
	if err != nil || len(line) == 0 {
		return services.TurnsBeside{}, false, err
	}
	begins, err := b.begin(ctx, line)
	if err != nil || !begins || b.unsure {
		return services.TurnsBeside{}, false, err
	}
	for _, x := range line {
		if there, err := x.fill(ctx); err != nil || !there {
			return services.TurnsBeside{}, false, err
		}
	}
	out := services.TurnsBeside{More: b.more}
	for _, x := range line {
		for _, p := range x.chosen {
			t := services.StandingTurn{Turn: p.Turn, SessionID: x.id, Partition: x.partition}
			if len(p.parts) > 0 {
				t.Skipped = p.parts[0].From
			}
			out.Turns = append(out.Turns, t)
		}
	}
	return out, true, nil
}

// stretch is a part of what is listed of a session: turns of its own, or turns of another session that a segment of the
// branch shares.
type stretch struct {
	*writing

	// kept are texts of the session that were listed lately.
	kept *texts
	// segment of the branch of root; nil for the session's own turns.
	segment *events.Segment
	root    string
	// after is the place up to which nothing is listed, and least the sequence that the stretch has to be as new as: 0
	// if the log has to be asked.
	after, least uint64
	// chosen are the turns that were asked for, oldest first.
	chosen []piece
}

// piece is a turn, or a part of one that was extended: its question, and some of what events brought to its answer. It
// may hold more, if one event brought both.
type piece struct {
	*conversation.Turn

	whole, question bool
	parts           []conversation.AnswerPart
}

func (s *Service) stretch(id string) *stretch {
	return &stretch{writing: s.writing(id), kept: s.textsOf(id)}
}

// line returns the parts of what is listed of a session, oldest first; none if there is no such session.
func (s *Service) line(ctx context.Context, ask services.BesideAsk) (line []*stretch, err error) {
	own := s.stretch(ask.SessionID)
	found := false
	d, err := own.standing(ctx, ask.Known, func(st *conversation.State) (d conversation.Decision) {
		found = st.Found()
		return d
	})
	if err != nil || !found {
		return nil, err
	}
	own.least = own.known.head
	fork := d.head.Fork()
	if fork.Root == "" {
		own.after = d.head.ResetAt
		return []*stretch{own}, nil
	}
	if own.after = d.head.Boundary; own.after != 0 {
		return []*stretch{own}, nil
	}
	for _, g := range fork.Segments() {
		x := s.stretch(g.SessionID)
		x.segment, x.root = &g, fork.Root
		if g.After != nil && g.After.Seq != 0 { // the boundary that held there at the fork hides all before it
			x.after, line = g.After.Seq, nil
		}
		line = append(line, x)
	}
	return append(line, own), nil
}

// look calls use with the turns of the stretch, in their order, listed or not.
func (x *stretch) look(ctx context.Context, use func([]*conversation.Turn)) error {
	_, err := x.looked(ctx, x.least, func(st *conversation.State) (d conversation.Decision) {
		list := st.Turns
		if x.segment != nil {
			list = slices.Collect(st.Shared(x.root, *x.segment))
			slices.Reverse(list)
		}
		use(list)
		return d
	})
	return err
}

// lists reports whether a turn of the stretch is listed.
func (x *stretch) lists(t *conversation.Turn) bool {
	return t.Place > x.after && (t.Status == conversation.Pending || t.Status == conversation.Finalized)
}

// own returns a copy of a turn as the stretch shows it. It reports false if the texts of the copy can't be told from
// the events that brought them: a prune after the fork holds also what extended the turn after the fork.
func (x *stretch) own(t *conversation.Turn) (own *conversation.Turn, sure bool) {
	if x.segment == nil {
		own := *t
		return &own, true
	}
	end := x.segment.Through.Seq
	own = t.Until(end, t.Final != 0)
	return own, t.PrunedAt() <= end || len(own.Extensions()) == len(t.Extensions())
}

// beside is the search for turns that stand side by side.
type beside struct {
	services.BesideAsk

	messages     int
	more, unsure bool
}

// begin chooses the turns. It reports false if there is nothing at At.
func (b *beside) begin(ctx context.Context, line []*stretch) (bool, error) {
	at, step := 0, 1
	if b.Back {
		at, step = len(line)-1, -1
	}
	found := b.At.Seq == 0
	for n := len(line) - 1; n >= 0 && !found; n-- {
		if line[n].partition != b.At.Partition {
			continue
		}
		err := line[n].look(ctx, func(list []*conversation.Turn) {
			if i := broughtBy(list, b.At.Seq); i >= 0 && line[n].lists(list[i]) {
				found, at = true, n+step
				b.take(line[n], list, i, list[i])
			}
		})
		if err != nil {
			return false, err
		}
	}
	for ; found && !b.more && at >= 0 && at < len(line); at += step {
		err := line[at].look(ctx, func(list []*conversation.Turn) {
			first := 0
			if b.Back {
				first = len(list) - 1
			}
			b.take(line[at], list, first, nil)
		})
		if err != nil {
			return false, err
		}
	}
	return found, nil
}

// broughtBy returns which turn the event of a sequence opened, answered, extended or pruned, or -1.
func broughtBy(list []*conversation.Turn, seq uint64) int {
	end, _ := slices.BinarySearchFunc(list, seq+1, func(t *conversation.Turn, place uint64) int {
		return cmp.Compare(t.Place, place)
	})
	for i, t := range slices.Backward(list[:end]) {
		if t.BroughtBy(seq) {
			return i
		}
	}
	return -1
}

// take chooses turns of a stretch from the one of an index on, until there are enough. from is the turn at At.
func (b *beside) take(x *stretch, list []*conversation.Turn, i int, from *conversation.Turn) {
	step := 1
	if b.Back {
		step = -1
	}
	for ; i >= 0 && i < len(list) && !b.more; i += step {
		t := list[i]
		if !x.lists(t) {
			continue
		}
		if b.more = t != from && b.messages >= b.Messages; b.more {
			break
		}
		own, sure := x.own(t)
		b.unsure = b.unsure || !sure
		x.chosen = append(x.chosen, b.pieceOf(own, t == from))
	}
	if b.Back {
		slices.Reverse(x.chosen)
	}
}

// pieceOf chooses what is asked for of a turn. at: it is the one at At.
func (b *beside) pieceOf(t *conversation.Turn, at bool) piece {
	parts := t.AnswerParts()
	if b.Messages == 0 || len(parts) < 2 {
		if !at {
			b.messages += t.LeastMessages()
		}
		return piece{Turn: t, whole: true}
	}
	p := piece{Turn: t}
	const question = -1
	i, step, end := question, 1, len(parts)
	if b.Back {
		i, step, end = len(parts)-1, -1, question-1
	}
	if at {
		i = b.partAt(t, parts)
	}
	for n := 0; i != end && (b.messages < b.Messages || at && n == 0); i, n = i+step, n+1 {
		count := 1
		if i == question {
			p.question = true
		} else {
			p.parts, count = append(p.parts, parts[i]), parts[i].Messages
		}
		if !at || n > 0 {
			b.messages += count
		}
	}
	b.more = i != end
	if b.Back {
		slices.Reverse(p.parts)
	}
	return p
}

// partAt returns which part of the answer holds the message at At, or -1 for the question.
func (b *beside) partAt(t *conversation.Turn, parts []conversation.AnswerPart) int {
	if !b.Answer {
		return -1
	}
	has := func(p conversation.AnswerPart) bool { return p.From <= b.Message && b.Message < p.From+p.Messages }
	if b.At.Seq != t.Begun(events.HalfAnswer) {
		// The id was made with the place of a request, before there was its answer, or before the turn was pruned.
		has = func(p conversation.AnswerPart) bool { return p.Seq > b.At.Seq }
	}
	return max(0, slices.IndexFunc(parts, has))
}

// sources returns the sequences of the events that brought the texts of the piece, in order.
func (p piece) sources() (seqs []uint64) {
	if p.whole {
		return p.Sources()
	}
	answers := map[uint64]bool{}
	for _, a := range p.AnswerParts() {
		answers[a.Seq] = true
	}
	for _, seq := range p.Sources() {
		chosen := func(a conversation.AnswerPart) bool { return a.Seq == seq }
		asks := !answers[seq] || seq == p.Begun(events.HalfQuestion)
		if p.question && asks || slices.ContainsFunc(p.parts, chosen) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// fill adds the texts of the chosen turns. It reads those from the log that were not listed lately. It reports whether
// it found all: an erasure may have come first.
func (x *stretch) fill(ctx context.Context) (bool, error) {
	var seqs []uint64
	for _, p := range x.chosen {
		seqs = append(seqs, p.sources()...)
	}
	slices.Sort(seqs)
	have, lacks := x.kept.have(slices.Compact(seqs))
	read, err := x.log.Some(ctx, x.partition, lacks)
	if err != nil {
		return false, err
	}
	for _, e := range read {
		if e.SessionID != x.id {
			return false, nil // the stream was replaced
		}
		have[e.Position.Seq] = e.Fact
	}
	if len(read) > 0 {
		x.kept.keep(read)
		x.weighTexts(x.id)
	}
	for _, p := range x.chosen {
		var brought []events.Fact
		for _, seq := range p.sources() {
			f, has := have[seq]
			if !has {
				e, found, err := x.log.At(ctx, events.Position{Partition: x.partition, Seq: seq})
				if err != nil || !found {
					return false, err
				}
				f = e.Fact
			}
			brought = append(brought, f)
		}
		p.Question, p.Answer, p.AnswerMetadata = nil, nil, nil
		if len(p.parts) > 0 && p.parts[0].From > 0 {
			p.Answer = &events.Answer{}
		}
		x.cfg.Rules.Fill(p.Turn, brought...)
	}
	return true, nil
}
