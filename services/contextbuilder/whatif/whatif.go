// Package whatif says what models were told of the history before their answers, and what they would have been told
// with other settings. It reads each session once, and builds its prompts as of the events that brought the answers. It
// asks no model and records nothing.
package whatif

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/align"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

// Walk shows a session as it was at one place in the log after the other; read.Walk says more.
type Walk interface {
	contextbuilder.Sessions
	Today() *session.State
	Partition() int
	Events(seqs []uint64) []events.Recorded
	To(seq uint64)
	Now() time.Time
	Then(turn uuid.UUID) *session.Turn
}

// Service implements services.WhatIfs.
type Service struct {
	Walk    func(ctx context.Context, sessionID string) (Walk, error)
	Events  services.EventReader
	Prompts *contextbuilder.Builder
	// Key is that of the digests of prompts; without it none is compared.
	Key []byte
}

var _ services.WhatIfs = Service{}

// WhatIf implements services.WhatIfs.
func (s Service) WhatIf(ctx context.Context, ask services.WhatIfAsk, row func(services.WhatIf) error) error {
	sessions := ask.Sessions
	if sessions == nil {
		var err error
		if sessions, err = s.answered(ctx, ask); err != nil {
			return err
		}
	}
	for _, id := range sessions {
		if err := s.session(ctx, id, ask, row); err != nil {
			return err
		}
	}
	return nil
}

// answers are the types of events that answer turns, or of what stands in their place.
var answers = []string{
	events.TypeTurnFinalized, events.TypeTurnRecorded, events.TypeTurnCorrected, events.TypeTurnPruned,
}

// answered returns the sessions of an identity, or all, that have answers, in the order of their first ones.
func (s Service) answered(ctx context.Context, ask services.WhatIfAsk) (ids []string, err error) {
	stream, err := s.Events.OpenEvents(ctx, services.EventQuery{
		IdentityID: ask.IdentityID, Since: ask.Since, Types: answers,
	})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	seen := map[string]bool{}
	for {
		batch, err := stream.Next(ctx)
		for _, e := range batch {
			var of struct{ Subject string }
			if err := json.Unmarshal(e.JSON, &of); err != nil {
				return nil, err
			}
			if of.Subject != "" && !seen[of.Subject] {
				seen[of.Subject], ids = true, append(ids, of.Subject)
			}
		}
		if errors.Is(err, io.EOF) {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// session tells the rows of a session.
func (s Service) session(
	ctx context.Context, id string, ask services.WhatIfAsk, row func(services.WhatIf) error,
) error {
	walk, err := s.Walk(ctx, id)
	if err != nil || walk.Today().Erased != 0 {
		return err
	}
	w := &walking{Service: s, walk: walk, ask: ask, prompts: s.Prompts.On(walk, walk.Now)}
	w.find()
	steps := w.steps
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for _, st := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		walk.To(st.at)
		if err := w.step(ctx, st); err != nil {
			return err
		}
	}
	for _, r := range w.rows {
		if err := row(*r); err != nil {
			return err
		}
	}
	return nil
}

// walking is the way through a session.
type walking struct {
	Service

	walk    Walk
	ask     services.WhatIfAsk
	prompts *contextbuilder.Builder
	rows    []*services.WhatIf
	steps   []step
	// gone: a turn was redacted.
	gone bool
}

// step is an answer of a turn, of which there are several where tools were called.
type step struct {
	row *services.WhatIf
	// root is the version of the turn that was asked first.
	turn, root *session.Turn
	// at is the sequence as of which the prompt was built.
	at uint64
	// settings are nil for a prompt that was not built here.
	settings *services.PromptSettings
}

// find finds the answered turns of the session itself, and their answers.
func (w *walking) find() {
	today, partition := w.walk.Today(), w.walk.Partition()
	for _, t := range today.Turns {
		w.gone = w.gone || t.Status == session.Redacted
		if _, _, inherited := today.Origin(t, partition); inherited || t.Status != session.Finalized ||
			t.FinalizedAt.Before(w.ask.Since) {
			continue
		}
		row := &services.WhatIf{
			SessionID: today.SessionID, TurnID: t.ID, Told: services.ToldSame,
			Position: events.Position{Partition: partition, Seq: t.Started},
		}
		w.rows = append(w.rows, row)
		root := today.Chain(t)[0]
		steps := w.answersOf(root)
		if len(steps) == 0 {
			steps = []step{{at: session.PlaceOf(t)}}
		}
		for _, st := range steps {
			st.row, st.turn, st.root = row, t, root
			w.steps = append(w.steps, st)
		}
	}
}

// answersOf returns the answers of a turn whose prompts were built here.
func (w *walking) answersOf(t *session.Turn) (steps []step) {
	instructions := ""
	for _, b := range session.SettingsOf(w.walk.Events(t.Sources())) {
		var says struct {
			Request *struct{ Instructions string }
			Prompt  *services.PromptSettings
		}
		if json.Unmarshal(b.Settings, &says) != nil {
			continue // another pipeline's
		}
		if says.Request != nil {
			instructions = says.Request.Instructions
		}
		if p := says.Prompt; p != nil && p.AsOf.Partition == w.walk.Partition() {
			p.SystemPrompt = cmp.Or(p.SystemPrompt, instructions)
			steps = append(steps, step{at: p.AsOf.Seq, settings: p})
		}
	}
	return steps
}

// prompt is one that was built, or could have been.
type prompt struct {
	system   string
	messages []json.RawMessage
	turns    []uuid.UUID
}

// step builds the prompt of a step as it was and as it would be. The numbers of a row are those of its last step.
func (w *walking) step(ctx context.Context, st step) error {
	settings := st.settings
	if settings == nil {
		inForce := w.Prompts.Settings(services.ContextRequest{Format: services.OpenAI}, &services.Context{})
		settings = &inForce
	}
	told, err := w.build(ctx, st, *settings, false)
	if err != nil {
		return err
	}
	would := told
	if changed := w.changed(*settings); w.ask.Memory || !same(changed, *settings) {
		if would, err = w.build(ctx, st, changed, w.ask.Memory); err != nil {
			return err
		}
	}
	r := st.row
	r.Told = worse(r.Told, w.told(st, told))
	r.TokensTold = w.prompts.Tokens(told.system, told.messages)
	r.TokensIf = w.prompts.Tokens(would.system, would.messages)
	r.TurnsTold, r.TurnsIf = len(told.turns), len(would.turns)
	r.LeftOut, r.BroughtIn = lacking(told.turns, would.turns), lacking(would.turns, told.turns)
	return nil
}

// changed returns settings with those that were asked for.
func (w *walking) changed(s services.PromptSettings) services.PromptSettings {
	if s.Sent > 0 && (w.ask.MaxMessages > 0 || w.ask.MaxTokens > 0) {
		s.Sent, s.MaxMessages = 0, services.MostMessages
	}
	s.MaxTokens, s.MaxMessages = cmp.Or(w.ask.MaxTokens, s.MaxTokens), cmp.Or(w.ask.MaxMessages, s.MaxMessages)
	s.Summary = s.Summary || w.ask.Summary
	if w.ask.System != "" {
		s.SystemPrompt, s.System = w.ask.System, nil
	}
	return s
}

func same(a, b services.PromptSettings) bool {
	return a.MaxTokens == b.MaxTokens && a.MaxMessages == b.MaxMessages && a.Sent == b.Sent && a.Summary == b.Summary &&
		a.SystemPrompt == b.SystemPrompt && len(a.System) == len(b.System)
}

// build builds the prompt of a step with settings.
func (w *walking) build(
	ctx context.Context, st step, s services.PromptSettings, memory bool,
) (p prompt, err error) {
	if s.Sent > 0 { // what a client sends are the newest messages
		s.MaxMessages = max(s.Sent, services.LeastMessages)
	}
	req := contextbuilder.Request(s, st.row.SessionID, st.root.ID, w.question(st))
	req.Memory = memory
	built, err := w.prompts.Build(ctx, req)
	if err != nil {
		return p, err
	}
	p.system = built.System
	for _, m := range built.Messages {
		p.messages = append(p.messages, m.JSON())
	}
	if len(s.System) > 0 && s.SystemPrompt != "" && s.Format == services.OpenAI {
		p.messages = append(slices.Clone(s.System), p.messages[1:]...)
	}
	for _, id := range built.TurnIDs {
		if id != st.root.ID {
			p.turns = append(p.turns, id)
		}
	}
	return p, nil
}

// question returns what was asked.
func (w *walking) question(st step) string {
	for _, t := range []*session.Turn{w.walk.Then(st.root.ID), st.turn} {
		if t != nil && t.Question != nil && t.Question.QuestionNeutral != "" {
			return t.Question.QuestionNeutral
		}
	}
	return "(no text)"
}

// told says how the prompt of a step is known.
func (w *walking) told(st step, p prompt) services.Told {
	s := st.settings
	switch {
	case st.turn.ID != st.root.ID: // what was asked is not there any more
		return services.ToldPart
	case s == nil, !align.Under(w.Key, s.Digest):
		return services.ToldAssumed
	case s.Sent > 0:
		said := align.Said(p.messages)
		if align.Seal(w.Key, said[max(0, len(said)-s.Sent):]) == s.Digest {
			return services.ToldSame
		}
		if !w.gone && st.turn.PrunedAt() == 0 {
			return services.ToldAssumed // the client showed something else than what was recorded
		}
	case align.Prompt(w.Key, p.system, p.messages) == s.Digest:
		return services.ToldSame
	}
	return services.ToldPart
}

// worse returns what is known less.
func worse(a, b services.Told) services.Told {
	for _, t := range []services.Told{services.ToldPart, services.ToldAssumed} {
		if a == t || b == t {
			return t
		}
	}
	return services.ToldSame
}

// lacking returns the turns that another list lacks.
func lacking(all, from []uuid.UUID) []uuid.UUID {
	has := make(map[uuid.UUID]bool, len(from))
	for _, id := range from {
		has[id] = true
	}
	out := []uuid.UUID{}
	for _, id := range all {
		if !has[id] {
			out = append(out, id)
		}
	}
	return out
}
