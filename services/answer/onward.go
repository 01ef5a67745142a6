package answer

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/align"
	"github.com/turnledger/turnledger/services/items"
)

// history is a session beside an input: with is what they share.
type history struct {
	services.Reading

	in    align.Input
	turns []align.Turn
	of    []*session.Turn
	with  align.Shared
	// loose: it is the history of a chat completion, which reads past resets.
	loose bool
	// fork is the branch that begins behind what they share, with what is new. Nobody has made it yet.
	fork decide.ForkSession
}

func (s *Service) historyOf(
	ctx context.Context, sessionID string, in align.Input, loose bool,
) (h history, err error) {
	h.in, h.loose = in, loose
	h.Reading, err = s.cfg.Sessions.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true, Pending: loose})
	if err != nil {
		return h, err
	}
	boundary := h.State.Boundary
	if loose {
		boundary = 0
	}
	h.turns, h.of = s.turns(h.Reading, ^uint64(0), boundary)
	return h.compared(in), nil
}

// compared returns the history beside another input.
func (h history) compared(in align.Input) history {
	compare := align.History
	if h.loose {
		compare = align.Chat
	}
	h.in, h.with = in, compare(h.turns, in)
	return h
}

// stands counts the items of the input that the session has. One that ends at a question has it.
func (h history) stands() int {
	if h.with.Ends {
		h.with.Rest = len(h.in.Items)
	}
	return h.with.Stands()
}

// mostBranches bounds the branches of a session that are read because others may have gone on with an input there,
// other than those that such an input makes: these are found by their ids, however many there are.
const mostBranches = 64

// onward returns the branch of a session that has more of an input than the session does, or that begins with what is
// new of it; nil if there is none. Then the history says which branch could be made. other: branches that no such input
// has made are looked at, too.
func (s *Service) onward(ctx context.Context, h *history, other bool) (next *history, err error) {
	if h.with.Rest == len(h.in.Items) || len(h.in.Items) == 0 {
		return nil, nil //nolint:nilnil // nothing is new
	}
	most, looked := h.with.Stands(), map[string]bool{}
	look := func(b session.Branch, cut int) (is *history, err error) {
		looked[b.SessionID] = true
		of, err := s.historyOf(ctx, b.SessionID, h.in, h.loose)
		if err != nil || !b.Made(of.State) || of.State.Erased != 0 {
			return nil, err
		}
		// What is gone before the branch begins is none of its own.
		gone := slices.DeleteFunc(slices.Clone(h.with.Gone), func(n int) bool { return n >= cut })
		if left := of.compared(h.in.Without(gone)); len(gone) > 0 && left.stands() >= of.stands() {
			of = left
		}
		if n := of.stands(); n > most {
			most, next = n, &of
		}
		return &of, nil
	}
	var made *history
	var first []byte // what the item at the place told says
	told := -1
	for last, cut := range h.cuts() {
		if cut != told {
			first, told = align.Digest(h.in.Items[cut]), cut
		}
		for again := 0; ; again++ { // the first may be erased
			fork := s.forkAt(h.State, last, first, again)
			b, marked := h.State.Branch(fork.RequestID)
			if !marked {
				if h.fork.SessionID == "" {
					h.fork = fork
				}
				break
			}
			is, err := look(b, cut)
			if err != nil {
				return nil, err
			}
			if is != nil {
				if h.fork.SessionID == "" {
					made, h.fork = is, fork
				}
				break
			}
		}
	}
	if other && next == nil && made == nil {
		if err := s.othersOf(h, looked, look); err != nil {
			return nil, err
		}
	}
	return cmp.Or(next, made), nil
}

// othersOf looks at the newest branches of a session that were not looked at: all where the input shares nothing with
// the session, since its front may be cut, else those that were made otherwise.
func (*Service) othersOf(
	h *history, looked map[string]bool, look func(session.Branch, int) (*history, error),
) error {
	branches := h.State.BranchesBy(func(request string) bool {
		return h.with.Turns == 0 || !strings.HasPrefix(request, inputForks)
	})
	branches = slices.DeleteFunc(branches, func(b session.Branch) bool { return looked[b.SessionID] })
	slices.SortFunc(branches, func(x, y session.Branch) int { return cmp.Compare(y.MarkedAt, x.MarkedAt) })
	for _, b := range branches[:min(len(branches), mostBranches)] {
		if _, err := look(b, len(h.in.Items)); err != nil {
			return err
		}
	}
	return nil
}

// mostCuts bounds the places at which a branch may begin with an item of an input that shares nothing with a session.
const mostCuts = 1 << 14

// cuts yields where a branch of a session may begin: behind a turn, or without any, and with an item of the input. The
// first is where the session and the input part. If they share nothing, the front of the input may be cut.
func (h *history) cuts() iter.Seq2[*session.Turn, int] {
	return func(yield func(*session.Turn, int) bool) {
		turn := func(n int) *session.Turn {
			if n == 0 {
				return nil
			}
			return h.of[n-1]
		}
		marks := h.State.HasBranches()
		for n, cut := range slices.Backward(h.with.Cuts) {
			if cut < len(h.in.Items) && !yield(turn(min(h.with.First, h.with.Turns)+n), cut) || !marks {
				return
			}
		}
		for pairs, cut := 0, 0; h.with.Turns == 0 && cut < len(h.in.Items); cut++ {
			if !h.in.Items[cut].Asks() {
				continue
			}
			for n := range h.of {
				if pairs++; pairs > mostCuts || !yield(h.of[n], cut) {
					return
				}
			}
		}
	}
}

// inputForks begins the requests of forks that inputs make.
const inputForks = "input."

// forkAt returns the fork of a session behind a turn, or without any, for an input that begins with an item. The same
// inputs make the same one, also once the turn is redacted or corrected.
func (s *Service) forkAt(state *session.State, last *session.Turn, first []byte, again int) decide.ForkSession {
	of := hmac.New(sha256.New, s.cfg.IDs.Key)
	behind := uuid.Nil
	if last != nil {
		behind = state.Chain(last)[0].ID
	}
	_, _ = of.Write([]byte(strings.Join([]string{state.SessionID, behind.String(), strconv.Itoa(again), ""}, "\x00")))
	_, _ = of.Write(first) // never fails
	digest := [sha256.Size]byte(of.Sum(nil))
	return decide.ForkSession{
		SessionID: state.SessionID, RequestID: inputForks + hex.EncodeToString(digest[:16]),
		ChildID: items.ConversationID(digest),
	}
}

// lacks reports whether the session lacks something of its turns, which an input may have at its place: a branch may
// then have more of the input, though the session goes on as the input does.
func (h history) lacks() bool {
	return slices.ContainsFunc(h.turns, func(t align.Turn) bool { return t.Lacks })
}

// behindShared returns the fork of the history behind the last turn that a branch may share.
func (h history) behindShared() decide.ForkSession {
	fork := h.fork
	if last := lastShared(h.State, h.of[:h.with.Turns]); last != nil {
		fork.TurnID = last.ID
	} else if n := slices.IndexFunc(h.State.Turns, h.State.Shown); n >= 0 {
		fork.BeforeTurnID = h.State.Turns[n].ID
	}
	return fork
}

// lastShared returns the last of some turns that a branch may share, or nil.
func lastShared(state *session.State, of []*session.Turn) *session.Turn {
	for _, t := range slices.Backward(of) {
		if t.Status == session.Finalized && state.Shown(t) {
			return t
		}
	}
	return nil
}
