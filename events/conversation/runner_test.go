package conversation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

var policy = conversation.Policy{MetadataKeys: []string{"channel", "locale", conversation.FallbackKey}}

// runner plays a script against one world.
type runner struct{ *world }

func (r *runner) step(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		out, err := r.line(line)
		if err != nil {
			return fmt.Sprintf("script error: %v\n", err)
		}
		b.WriteString(out)
	}
	return b.String()
}

func (r *runner) line(line string) (string, error) {
	a, err := parseLine(line)
	if err != nil {
		return "", err
	}
	if len(a.words) == 0 {
		return "", errors.New("no command in " + line)
	}
	switch a.words[0] {
	case "session":
		return r.newSession(a)
	case "wait":
		d, err := time.ParseDuration(a.word(1))
		r.clock = r.clock.Add(d)
		return "", err
	case "start", "finalize", "link", "redact", "correct", "reset", "describe", "summarize", "fork", "begin", "extend",
		"prune":
		return r.command(a)
	case "normal":
		return r.normal(args{words: a.words[1:], values: a.values})
	case "raw":
		return r.raw(args{words: a.words[1:], values: a.values})
	case "again":
		return r.again(a)
	case "redeliver":
		return r.redeliver()
	case "replay":
		return r.replay(a)
	case "show":
		return r.show(r.live), nil
	case "shown":
		return r.shownTurns(), nil
	case "expired":
		d, err := time.ParseDuration(a.word(1))
		return fmt.Sprintln(r.live.Expired(r.clock.Add(d))), err
	default:
		return "", errors.New("unknown command " + a.words[0])
	}
}

func (r *runner) newSession(a args) (string, error) {
	rules := conversation.Rules{Slim: a.has("slim")}
	if ttl := a.values["ttl"]; ttl != "" {
		d, err := time.ParseDuration(ttl)
		if err != nil {
			return "", err
		}
		rules.SessionTTL = d
	}
	r.world = newWorld(a.word(1), rules)
	return "", nil
}

// command decides as a process does that has seen the log up to stale=, appends
// what is asked for, and decides again: the verdict.
func (r *runner) command(a args) (string, error) {
	state := r.live
	if v := a.values["stale"]; v != "" {
		seq, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return "", err
		}
		state = r.at(seq)
	}
	d, err := r.decide(state, a)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	expected := state.Applied
	if len(d.Facts) == 0 || d.Err != nil {
		b.WriteString(r.verdict("", d))
	}
	if d.Expect && expected != r.last() {
		fmt.Fprintf(&b, "conflict: expects %d, last is %d\n", expected, r.last())
		return b.String(), nil
	}
	for _, f := range d.Facts {
		c := r.append(f)
		fmt.Fprintf(&b, "%d %s%s: %s\n", r.head, short(f.Type()), map[bool]string{true: fmt.Sprintf(" expect=%d",
			expected)}[d.Expect], r.describe(c))
	}
	if len(d.Facts) == 0 || d.Err != nil {
		return b.String(), nil
	}
	d, err = r.decide(r.live, a)
	if err == nil && len(d.Facts) > 0 && d.Err == nil {
		err = fmt.Errorf("the verdict asks for %d facts again", len(d.Facts))
	}
	return b.String() + r.verdict("-> ", d), err
}

// describeOf reads "describe REQUEST title=T metadata=KEY:VALUE,KEY kind=K"; a key alone is taken away.
func (r *runner) describeOf(a args) conversation.Describe {
	c := conversation.Describe{
		SessionID: r.session, RequestID: a.word(1), Kind: events.SessionKind(a.values["kind"]),
	}
	if title, ok := a.values["title"]; ok {
		c.Title = &title
	}
	for _, pair := range strings.Split(a.values["metadata"], ",") {
		k, v, set := strings.Cut(pair, ":")
		if k == "" {
			continue
		}
		if c.Metadata == nil {
			c.Metadata = map[string]*string{}
		}
		if c.Metadata[k] = nil; set {
			c.Metadata[k] = &v
		}
	}
	return c
}

func short(typ string) string {
	return strings.TrimSuffix(strings.TrimPrefix(typ, "turnledger."), ".v1")
}

func (r *runner) verdict(prefix string, d conversation.Decision) string {
	var refused *conversation.Refusal
	switch {
	case errors.As(d.Err, &refused):
		return prefix + "refused " + refused.Code + "\n"
	case d.Turn != nil:
		return fmt.Sprintf("%sturn=%s v%d %s rest=%d\n", prefix, d.Turn.RequestID, d.Turn.Version, d.Turn.Status,
			d.RestsOn)
	default:
		return fmt.Sprintf("%srest=%d\n", prefix, d.RestsOn)
	}
}

func (r *runner) decide(s *conversation.State, a args) (conversation.Decision, error) {
	switch a.words[0] {
	case "start":
		c, _, err := policy.NormalStart(r.startOf(a))
		return s.DecideStart(c), err
	case "finalize":
		c, _, err := policy.NormalFinalize(r.finalizeOf(a))
		return s.DecideFinalize(c), err
	case "link":
		return s.DecideLink(a.word(1), a.values["source"]), nil
	case "redact":
		return s.DecideRedact(conversation.Redact{TurnID: r.turn(a.word(1)), Reason: a.values["reason"],
			RedactedBy: a.values["by"]}), nil
	case "reset":
		return s.DecideReset(a.values["reason"], 0), nil
	case "extend":
		c, _, err := policy.NormalExtend(r.extendOf(a))
		return s.DecideExtend(c), err
	case "prune":
		return r.prune(s, r.pruneOf(a))
	case "fork":
		return r.fork(s, a)
	case "begin":
		return s.DecideFork(r.forkOf(a), a.values["identity"]), nil
	case "describe":
		c, err := conversation.NormalDescribe(r.describeOf(a))
		return s.DecideDescribe(c, 0), err
	case "summarize":
		c, err := conversation.NormalSummarize(conversation.Summarize{ThroughTurnID: r.turn(a.values["through"]),
			Summary: events.SessionSummarized{SessionID: r.session, RequestID: a.word(1),
				SummaryNeutral:    a.values["text"],
				SummaryTranslated: a.values["translated"], Model: a.values["model"]}})
		return s.DecideSummarize(c), err
	default:
		c, err := policy.NormalCorrect(r.correctOf(a))
		if err != nil {
			return conversation.Decision{}, err
		}
		if d, ok := s.CorrectRefused(c); ok {
			return d, nil
		}
		return s.DecideCorrect(c, r.at(r.head).Turn(c.TurnID)), nil
	}
}

func (r *runner) startOf(a args) conversation.Start {
	r.turn(a.word(1))
	return conversation.Start{
		SessionID: r.session, RequestID: a.word(1), IdentityID: a.values["identity"], SourceHash: a.values["source"],
		Question: questionOf(a),
	}
}

func questionOf(a args) events.Question {
	return events.Question{
		PipelineName: a.values["pipeline"], QuestionNeutral: a.values["q"], QuestionTranslated: a.values["qt"],
		QuestionMessages: json.RawMessage(a.values["qm"]), Metadata: json.RawMessage(a.values["metadata"]),
		TranslateChat: a.has("translate"),
	}
}

func answerOf(a args) events.Answer {
	return events.Answer{
		AnswerNeutral: a.values["a"], AnswerTranslated: a.values["at"], AnswerTranslatedIsFallback: a.has("fallback"),
		AnswerMessages: json.RawMessage(a.values["am"]),
	}
}

func (r *runner) finalizeOf(a args) conversation.Finalize {
	c := conversation.Finalize{
		SessionID: r.session, TurnID: r.turn(a.word(1)), RequestID: a.values["request"],
		Answer: answerOf(a), Metadata: []byte(a.values["metadata"]),
	}
	if a.has("startfirst") {
		first := r.startOf(a)
		first.Question.Metadata = nil
		c.StartFirst = &first
	}
	return c
}

// extendOf reads "extend TURN ID answer m=MESSAGES a=TEXT", or question and q=.
func (r *runner) extendOf(a args) conversation.Extend {
	return conversation.Extend{SessionID: r.session, TurnID: r.turn(a.word(1)), ExtensionID: a.word(2),
		Extension: events.Extension{Half: events.Half(a.word(3)), Messages: json.RawMessage(a.values["m"]),
			QuestionNeutral: a.values["q"], AnswerNeutral: a.values["a"]},
		Metadata: []byte(a.values["metadata"])}
}

func (r *runner) correctOf(a args) conversation.Correct {
	r.turn(a.word(1))
	c := conversation.Correct{SessionID: r.session, RequestID: a.word(1), TurnID: r.turn(a.values["of"])}
	if a.values["of"] == "nobody" {
		c.TurnID = uuid.Nil
	}
	for name, field := range map[string]**string{"q": &c.QuestionNeutral, "qt": &c.QuestionTranslated,
		"a": &c.AnswerNeutral, "at": &c.AnswerTranslated} {
		if v, ok := a.values[name]; ok {
			*field = &v
		}
	}
	return c
}

// again publishes a recorded event once more, beyond any window of duplicates.
func (r *runner) again(a args) (string, error) {
	for _, e := range r.log {
		if strconv.FormatUint(e.Position.Seq, 10) == a.word(1) {
			return r.recorded(r.append(e.Fact)), nil
		}
	}
	return "", errors.New("no event " + a.word(1))
}

func (r *runner) recorded(c conversation.Change) string {
	return fmt.Sprintf("%d: %s\n", r.head, r.describe(c))
}

// redeliver folds the whole log again into the live state.
func (r *runner) redeliver() (string, error) {
	before := r.show(r.live)
	for _, e := range r.log {
		if c := r.live.Fold(e); c.Kind != conversation.Seen {
			return "", fmt.Errorf("event %d was folded again: %s", e.Position.Seq, r.describe(c))
		}
	}
	if after := r.show(r.live); after != before {
		return "", errors.New("redelivery changed the state to\n" + after)
	}
	return "nothing changed\n", nil
}

func (r *runner) shownTurns() string {
	var names []string
	for _, t := range r.live.Turns {
		if r.live.Shown(t) {
			names = append(names, t.RequestID+" "+t.Status.String())
		}
	}
	if len(names) == 0 {
		return "none\n"
	}
	return strings.Join(names, ", ") + "\n"
}
