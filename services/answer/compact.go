package answer

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// Summarizer has a model write summaries.
type Summarizer interface {
	// Through returns the summary of a session's turns from the first visible one through a finalized one. It is
	// recorded there, and made only once.
	Through(ctx context.Context, sessionID string, turn uuid.UUID) (services.Written, error)
	// Condense returns a summary of messages, which is not recorded.
	Condense(ctx context.Context, messages []message.Message) (services.Written, error)
}

// compacted is what a compaction stands for, in order.
type compacted []compactedPart

// compactedPart is a summary of a session that is in the log, so that it is void and erased with its turns; or the text
// of one of what is not recorded.
type compactedPart struct {
	Session string    `json:"session,omitempty"`
	Summary uuid.UUID `json:"summary,omitzero"`
	Text    string    `json:"text,omitempty"`
}

// compactionStart begins the content of a compaction, and names the version of its form.
const compactionStart = "tlc1_"

// compactions seals what compactions stand for.
func (s *Service) compactions() cipher.AEAD {
	key, err := hkdf.Key(sha256.New, s.cfg.IDs.Key, nil, "turnledger compaction v1", sha256.Size)
	if err != nil {
		panic(err) // of a length that is too large
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // of a key of another length
	}
	sealed, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of a block of another length
	}
	return sealed
}

// seal returns the content of a compaction. It is good for callers of the same identity.
func (s *Service) seal(c compacted, identity string) string {
	sealed := s.compactions().Seal(nil, nil, encode(c), []byte(identity))
	return compactionStart + base64.RawURLEncoding.EncodeToString(sealed)
}

// unseal returns what a compaction stands for: nothing, if it was not made for the identity.
func (s *Service) unseal(i message.Item, identity string) (c compacted) {
	body, ours := strings.CutPrefix(i.Encrypted(), compactionStart)
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if !ours || err != nil {
		return nil
	}
	plain, err := s.compactions().Open(nil, nil, raw, []byte(identity))
	if err != nil {
		return nil
	}
	_ = json.Unmarshal(plain, &c) // it was made here
	return c
}

// uncompacted returns the texts that a compaction stands for, as far as their turns are as they were.
func (s *Service) uncompacted(identity string) func(context.Context, message.Item) (string, error) {
	return func(ctx context.Context, i message.Item) (string, error) {
		var texts []string
		for _, p := range s.unseal(i, identity) {
			text := p.Text
			if p.Session != "" {
				var err error
				if text, err = s.summaryText(ctx, p); err != nil {
					return "", err
				}
			}
			if text != "" {
				texts = append(texts, text)
			}
		}
		return strings.Join(texts, "\n\n"), nil
	}
}

// summaryText returns the text of a summary, or "" if it stands no more.
func (s *Service) summaryText(ctx context.Context, p compactedPart) (string, error) {
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: p.Session, AllTurns: true})
	if err != nil || reading.State.Erased != 0 || reading.State.Expired(s.cfg.Now()) {
		return "", err
	}
	for _, m := range reading.State.Standing() {
		if m.ID == p.Summary && m.Fact != nil {
			return m.Fact.SummaryNeutral, nil
		}
	}
	return "", nil
}

// Compact implements services.Responder.
func (s *Service) Compact(ctx context.Context, a services.StepAsk) (out services.Compaction, err error) {
	if s.cfg.Summarizer == nil {
		return out, services.ErrNoSummaries
	}
	if a.Missing != nil {
		return out, a.Missing
	}
	a.Store = true // what is recorded is found by its ids
	at, err := s.place(ctx, ask{StepAsk: a})
	if err != nil {
		return out, err
	}
	var c compacted
	add := func(p compactedPart, w services.Written) {
		out.Usage = out.Usage.Plus(w.Usage)
		c = append(c, p)
	}
	if !at.begins {
		through, older, err := s.compactable(ctx, at, a.Identity)
		if err != nil {
			return out, err
		}
		if c = older; through != uuid.Nil {
			w, err := s.cfg.Summarizer.Through(ctx, at.session, through)
			if err != nil {
				return out, s.summaryFailed(err)
			}
			add(compactedPart{Session: at.session, Summary: w.Summary}, w)
		}
	}
	rest, older := s.withoutCompactions(messages(at.rest), a.Identity)
	if c = append(c, older...); len(rest) > 0 {
		w, err := s.cfg.Summarizer.Condense(ctx, message.ParseAll(rest))
		if err != nil {
			return out, s.summaryFailed(err)
		}
		add(compactedPart{Text: w.Text}, w)
	}
	if len(c) == 0 {
		return out, services.ErrNoInput
	}
	id, response := make([]byte, 24), make([]byte, 24)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(response)
	out.ID, out.ResponseID = "cmp_"+hex.EncodeToString(id), "resp_"+hex.EncodeToString(response)
	out.CreatedAt, out.Content = s.cfg.Now(), s.seal(c, a.Identity)
	return out, nil
}

// summaryFailed returns why there is no summary: what the session does not allow, or the model's failure.
func (*Service) summaryFailed(err error) error {
	_, refused := errors.AsType[*decide.Refusal](err)
	if refused || errors.Is(err, jetlog.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", services.ErrModelFailed, err)
}

// compactable returns the last turn of the history before a place, and what the compactions among its turns stand for.
func (s *Service) compactable(
	ctx context.Context, at place, identity string,
) (through uuid.UUID, older compacted, err error) {
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: at.session, AllTurns: true})
	if err != nil {
		return through, nil, err
	}
	state, through := reading.State, at.turn
	if through == uuid.Nil {
		for _, t := range slices.Backward(state.Turns) {
			if state.Shown(t) && t.Status == session.Finalized {
				through = t.ID
				break
			}
		}
	}
	last := state.Turn(through)
	for _, t := range state.Turns {
		if last == nil || t.Place > last.Place || !state.Shown(t) {
			continue
		}
		if t.Question != nil {
			older = append(older, s.compactionsIn(t.Question.QuestionMessages, identity)...)
		}
		if t.Answer != nil {
			older = append(older, s.compactionsIn(t.Answer.AnswerMessages, identity)...)
		}
	}
	return through, older, nil
}

func (s *Service) compactionsIn(list json.RawMessage, identity string) compacted {
	var all []json.RawMessage
	_ = json.Unmarshal(list, &all) // the log checked it
	_, older := s.withoutCompactions(all, identity)
	return older
}

// withoutCompactions returns messages without compactions, and what these stand for.
func (s *Service) withoutCompactions(
	all []json.RawMessage, identity string,
) (rest []json.RawMessage, older compacted) {
	for _, raw := range all {
		items := message.Items(raw)
		if len(items) == 1 && items[0].IsCompaction() {
			older = append(older, s.unseal(items[0], identity)...)
		} else {
			rest = append(rest, raw)
		}
	}
	return rest, older
}
