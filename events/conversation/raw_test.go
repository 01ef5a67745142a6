package conversation_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// raw publishes a fact past every decision, as a foreign client may.
func (r *runner) raw(a args) (string, error) {
	f, err := r.rawFact(a)
	if err != nil {
		return "", err
	}
	env, err := events.Encode(f, r.clock)
	if err != nil {
		return "", err
	}
	if typ := a.values["type"]; typ != "" {
		env.Header[events.HeaderType] = []string{typ}
	}
	if subject := a.values["subject"]; subject != "" {
		env.Subject = subject
	}
	return r.recorded(r.record(env)), nil
}

func (r *runner) rawFact(a args) (events.Fact, error) {
	request := a.word(1)
	id := r.turn(request)
	switch a.words[0] {
	case "started":
		return &events.TurnStarted{TurnID: id, SessionID: r.session, RequestID: request, Question: questionOf(a)}, nil
	case "finalized":
		return &events.TurnFinalized{TurnID: id, SessionID: r.session, Answer: answerOf(a)}, nil
	case "extended":
		c := r.extendOf(a)
		return &events.TurnExtended{TurnID: c.TurnID, SessionID: c.SessionID, ExtensionID: c.ExtensionID,
			Extension: c.Extension, Metadata: c.Metadata}, nil
	case "corrected":
		return &events.TurnCorrected{
			TurnID: id, SessionID: r.session, RequestID: request, ReplacesTurnID: r.turn(a.values["of"]),
			Question: questionOf(a), Answer: answerOf(a),
		}, nil
	case "redacted":
		f := &events.TurnRedacted{TurnID: id, SessionID: r.session}
		if raw := a.values["stones"]; raw != "" {
			if err := json.Unmarshal([]byte(r.fill(raw)), &f.Tombstones); err != nil {
				return nil, err
			}
		}
		return f, nil
	case "pruned":
		return r.prunedOf(a)
	case "forked":
		return r.forkOf(a), nil
	case "branched":
		f := &events.SessionBranched{
			SessionID: r.session, ChildSessionID: a.values["child"], RequestID: request, FromSessionID: r.session,
			Root: r.session,
		}
		at, err := strconv.ParseUint(cmp.Or(a.values["at"], "0"), 10, 64)
		f.At.Seq = at
		return f, err
	case "linked":
		return &events.SessionLinked{SessionID: r.session, IdentityID: request}, nil
	case "refused":
		return &events.LinkRefused{SessionID: r.session, IdentityID: request}, nil
	case "reset":
		after, err := strconv.ParseUint(a.values["after"], 10, 64)
		return &events.SessionReset{SessionID: r.session, After: events.Position{Seq: after}}, err
	case "described":
		f := &events.SessionDescribed{SessionID: r.session, RequestID: request, Title: a.values["title"],
			Kind: events.SessionKind(a.values["kind"])}
		after, err := strconv.ParseUint(a.values["after"], 10, 64)
		f.After.Seq = after
		if earlier := a.values["earlier"]; earlier != "" {
			f.Earlier, f.CreatedAt = []string{events.RequestHash(earlier)}, &epoch
		}
		return f, err
	case "voided":
		return &events.SessionSummarized{SessionID: r.session, RequestID: request, Void: true}, nil
	case "summarized":
		f := &events.SessionSummarized{SessionID: r.session, RequestID: request, SummaryNeutral: a.values["text"]}
		for _, name := range strings.Split(a.values["of"], ",") {
			if session, request, foreign := strings.Cut(name, "/"); foreign {
				f.TurnIDs = append(f.TurnIDs, events.TurnID(session, request))
				continue
			}
			f.TurnIDs = append(f.TurnIDs, r.turn(name))
		}
		return f, nil
	case "erased":
		return &events.SessionErased{SessionID: r.session, ReceiptID: "receipt"}, nil
	default:
		return nil, errors.New("unknown fact " + a.words[0])
	}
}

// fill puts turn ids in the place of "<request>".
func (r *runner) fill(s string) string {
	for {
		before, rest, ok := strings.Cut(s, "<")
		name, after, closed := strings.Cut(rest, ">")
		if !ok || !closed {
			return s
		}
		s = before + r.turn(name).String() + after
	}
}

// replay folds the log anew without some of its events, and says how the session
// differs from the live one.
func (r *runner) replay(a args) (string, error) {
	missing := map[uint64]bool{}
	for s := range strings.SplitSeq(a.values["without"], ",") {
		if s == "" {
			continue
		}
		seq, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return "", err
		}
		missing[seq] = true
	}
	s := r.fold(func(e events.Recorded) bool { return !missing[e.Position.Seq] })
	if diff := differences(r.world, r.live, s); diff != "" {
		return diff, nil
	}
	return "same\n", nil
}

// differences between two states in everything but the last sequence seen, which
// goes back where a session's last event was erased (docs/design.md#writing).
func differences(w *world, a, b *conversation.State) string {
	x, y := *a.Clone(), *b.Clone()
	x.Applied, y.Applied = 0, 0
	for _, s := range []*conversation.State{&x, &y} { // a summary that does not stand may have left the log
		s.KeepSummaries(func(m conversation.Summary) bool { return s.Stands(&m) })
		s.ShareAnswers()
	}
	if reflect.DeepEqual(x, y) {
		return ""
	}
	left, right := strings.Split(w.show(&x), "\n"), strings.Split(w.show(&y), "\n")
	var out strings.Builder
	for i := range max(len(left), len(right)) {
		l, r := line(left, i), line(right, i)
		if l != r {
			fmt.Fprintf(&out, "live:   %s\nreplay: %s\n", l, r)
		}
	}
	if out.Len() == 0 {
		return "a difference that show does not show\n"
	}
	return out.String()
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}
