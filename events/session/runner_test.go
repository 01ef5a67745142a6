package session_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

var policy = decide.Policy{MetadataKeys: []string{"channel", "locale", session.FallbackKey}}

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
	case "start", "whole", "finalize", "link", "redact", "correct", "reset", "describe", "summarize", "fork", "begin", "extend",
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
	rules := session.Rules{Slim: a.has("slim")}
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
	for round := 0; len(d.Facts) > 0 && (round == 0 || d.Err == nil); round++ {
		if round > 1 {
			return "", errors.New("the verdict asks for facts for ever")
		}
		for _, f := range d.Facts {
			c := r.append(f)
			fmt.Fprintf(&b, "%d %s%s: %s\n", r.head, short(f.Type()), map[bool]string{true: fmt.Sprintf(" expect=%d",
				expected)}[d.Expect], r.describe(c))
		}
		if d.Err != nil {
			return b.String(), nil
		}
		if d, err = r.decide(r.live, a); err != nil {
			return "", err
		}
		if len(d.Facts) == 0 || d.Err != nil {
			b.WriteString(r.verdict("-> ", d))
		}
	}
	return b.String(), nil
}

// describeOf reads "describe REQUEST title=T metadata=KEY:VALUE,KEY kind=K"; a key alone is taken away.
func (r *runner) describeOf(a args) decide.Describe {
	c := decide.Describe{
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

func (r *runner) verdict(prefix string, d decide.Decision) string {
	var refused *decide.Refusal
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

func (r *runner) decide(s *session.State, a args) (decide.Decision, error) {
	switch a.words[0] {
	case "start":
		c, _, err := policy.NormalStart(r.startOf(a))
		return c.On(s), err
	case "whole":
		c := r.startOf(a)
		answer := answerOf(a)
		c.Answer, c.OnlyNew = &answer, a.has("onlynew")
		c, _, err := policy.NormalStart(c)
		return c.On(s), err
	case "finalize":
		c, _, err := policy.NormalFinalize(r.finalizeOf(a))
		return c.On(s), err
	case "link":
		return decide.Link(s, a.word(1), a.values["source"]), nil
	case "redact":
		return decide.Redact{TurnID: r.turn(a.word(1)), Reason: a.values["reason"],
			RedactedBy: a.values["by"]}.On(s), nil
	case "reset":
		return decide.Reset(s, a.values["reason"], 0), nil
	case "extend":
		c, _, err := policy.NormalExtend(r.extendOf(a))
		return c.On(s), err
	case "prune":
		return r.prune(s, r.pruneOf(a))
	case "fork":
		return r.fork(s, a)
	case "begin":
		return decide.Fork(s, r.ForkOf(a), a.values["identity"]), nil
	case "describe":
		c, err := decide.NormalDescribe(r.describeOf(a))
		return c.On(s, 0), err
	case "summarize":
		c, err := decide.NormalSummarize(decide.Summarize{ThroughTurnID: r.turn(a.values["through"]),
			Summary: events.SessionSummarized{SessionID: r.session, RequestID: a.word(1),
				SummaryNeutral:    a.values["text"],
				SummaryTranslated: a.values["translated"], Model: a.values["model"]}})
		return c.On(s), err
	default:
		c, err := policy.NormalCorrect(r.correctOf(a))
		if err != nil {
			return decide.Decision{}, err
		}
		if d, ok := c.Refused(s); ok {
			return d, nil
		}
		return c.On(s, r.at(r.head).Turn(c.TurnID)), nil
	}
}

func (r *runner) startOf(a args) decide.Start {
	r.turn(a.word(1))
	return decide.Start{
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

func (r *runner) finalizeOf(a args) decide.Finalize {
	c := decide.Finalize{
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
func (r *runner) extendOf(a args) decide.Extend {
	return decide.Extend{SessionID: r.session, TurnID: r.turn(a.word(1)), ExtensionID: a.word(2),
		Extension: events.Extension{Half: events.Half(a.word(3)), Messages: json.RawMessage(a.values["m"]),
			QuestionNeutral: a.values["q"], AnswerNeutral: a.values["a"]},
		Metadata: []byte(a.values["metadata"])}
}

func (r *runner) correctOf(a args) decide.Correct {
	r.turn(a.word(1))
	c := decide.Correct{SessionID: r.session, RequestID: a.word(1), TurnID: r.turn(a.values["of"])}
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

func (r *runner) recorded(c session.Change) string {
	return fmt.Sprintf("%d: %s\n", r.head, r.describe(c))
}

// redeliver folds the whole log again into the live state.
func (r *runner) redeliver() (string, error) {
	before := r.show(r.live)
	for _, e := range r.log {
		if c := r.live.Fold(e); c.Kind != session.Seen {
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

var update = flag.Bool("update", false, "rewrite the expectations of testdata/*.txt")

// TestScripts runs testdata/*.txt: each step is lines of input, a line "----", and
// the exact output up to an empty line. Lines that begin with # are comment.
//
//conformance:o30 o45
func TestScripts(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob("testdata/*.txt"))(t)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			script := parseScript(string(must.Get(os.ReadFile(name))(t)))
			run := &runner{}
			for i, step := range script {
				got := run.step(step.input)
				if !*update {
					require.Equal(t, step.want, got, "%s:%d, after\n%s", name, step.line, strings.Join(step.input,
						"\n"))
				}
				script[i].want = got
			}
			if *update {
				require.NoError(t, os.WriteFile(name, []byte(script.String()), 0o600))
			}
		})
	}
}

type step struct {
	line        int
	head, input []string // head is comment
	want        string
}

type script []step

func parseScript(raw string) script {
	var out script
	var cur step
	output := false
	for i, line := range strings.Split(raw, "\n") {
		switch {
		case output && line == "":
			out, cur, output = append(out, cur), step{}, false
		case output:
			cur.want += line + "\n"
		case line == "----":
			cur.line, output = i+1, true
		case line == "" && len(cur.input) == 0, strings.HasPrefix(line, "#"):
			cur.head = append(cur.head, line)
		case line != "":
			cur.input = append(cur.input, line)
		}
	}
	if output || len(cur.head)+len(cur.input) > 0 {
		out = append(out, cur)
	}
	return out
}

func (s script) String() string {
	var b strings.Builder
	for _, step := range s {
		for _, line := range append(step.head, step.input...) {
			b.WriteString(line + "\n")
		}
		if len(step.input) > 0 {
			b.WriteString("----\n" + step.want + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// args are the words of an input line: "word word key=value"; a value may be
// quoted as in Go.
type args struct {
	words  []string
	values map[string]string
}

func parseLine(line string) (args, error) {
	a := args{values: map[string]string{}}
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " ") {
		end := strings.IndexAny(rest, " =")
		if end < 0 {
			end = len(rest)
		}
		word := rest[:end]
		if rest = rest[end:]; !strings.HasPrefix(rest, "=") {
			a.words = append(a.words, word)
			continue
		}
		value, after, err := cutValue(rest[1:])
		if err != nil {
			return a, fmt.Errorf("value of %s in %q: %w", word, line, err)
		}
		a.values[word], rest = value, after
	}
	return a, nil
}

func cutValue(s string) (value, rest string, err error) {
	if quoted, err := strconv.QuotedPrefix(s); err == nil {
		value, err = strconv.Unquote(quoted)
		return value, s[len(quoted):], err
	}
	if strings.HasPrefix(s, `"`) || strings.HasPrefix(s, "`") {
		return "", "", strconv.ErrSyntax
	}
	value, rest, _ = strings.Cut(s, " ")
	return value, rest, nil
}

func (a args) has(flag string) bool {
	for _, w := range a.words[1:] {
		if w == flag {
			return true
		}
	}
	return false
}

func (a args) word(i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	return ""
}

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
	case "recorded":
		return &events.TurnRecorded{TurnID: id, SessionID: r.session, RequestID: request, Question: questionOf(a),
			Answer: answerOf(a)}, nil
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
		return r.ForkOf(a), nil
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
func differences(w *world, a, b *session.State) string {
	x, y := *a.Clone(), *b.Clone()
	x.Applied, y.Applied = 0, 0
	for _, s := range []*session.State{&x, &y} { // a summary that does not stand may have left the log
		s.KeepSummaries(func(m session.Summary) bool { return s.Stands(&m) })
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

// normal shows what the policy makes of a command.
func (r *runner) normal(a args) (string, error) {
	switch a.words[0] {
	case "start":
		c, dropped, err := policy.NormalStart(r.startOf(a))
		return normalized(err, dropped, texts(&session.Turn{Question: &c.Question}))
	case "finalize":
		c, dropped, err := policy.NormalFinalize(r.finalizeOf(a))
		return normalized(err, dropped, texts(&session.Turn{Answer: &c.Answer, AnswerMetadata: c.Metadata}))
	case "correct":
		c, err := policy.NormalCorrect(r.correctOf(a))
		var b strings.Builder
		for _, f := range []struct {
			name string
			text *string
		}{{"q", c.QuestionNeutral}, {"qt", c.QuestionTranslated}, {"a", c.AnswerNeutral}, {"at", c.AnswerTranslated}} {
			if f.text != nil {
				fmt.Fprintf(&b, "\n    %s: %s", f.name, *f.text)
			}
		}
		return normalized(err, nil, b.String())
	default:
		return "", errors.New("unknown command " + a.words[0])
	}
}

func normalized(err error, dropped []string, texts string) (string, error) {
	var invalid *decide.Invalid
	switch {
	case errors.As(err, &invalid):
		return "invalid " + invalid.Error() + "\n", nil
	case err != nil:
		return "", err
	}
	out := "ok"
	if len(dropped) > 0 {
		out += " dropped=" + strings.Join(dropped, ",")
	}
	return out + texts + "\n", nil
}

// fork decides "fork REQUEST turn=T before=T child=C": the mark of a branch of the session, which is no branch itself.
func (r *runner) fork(s *session.State, a args) (decide.Decision, error) {
	c := decide.ForkSession{SessionID: r.session, RequestID: a.word(1), ChildID: a.values["child"]}
	if t, ok := a.values["turn"]; ok {
		c.TurnID = r.turn(t)
	}
	if t, ok := a.values["before"]; ok {
		c.BeforeTurnID = r.turn(t)
	}
	c, err := decide.NormalFork(c)
	if err != nil {
		return decide.Decision{}, err
	}
	own := s.Fork()
	composed := s.Clone()
	composed.Inherit(own.Segments(), make([]*session.State, len(own.Segments())), 0)
	mark, refused := c.Mark(composed, own, events.Position{Seq: s.Applied}, r.clock)
	return c.On(s, mark, refused), nil
}

// ForkOf reads "forked REQUEST from=S root=S turn=REQUEST through=SEQ".
func (r *runner) ForkOf(a args) *events.SessionForked {
	f := &events.SessionForked{
		SessionID: r.session, RequestID: a.word(1), FromSessionID: a.values["from"], Root: a.values["from"],
	}
	if root := a.values["root"]; root != "" {
		f.Root = root
	}
	if t, ok := a.values["turn"]; ok {
		seq, _ := strconv.ParseUint(a.values["through"], 10, 64)
		f.Segments = []events.Segment{
			{SessionID: f.FromSessionID, ThroughTurnID: events.TurnID(f.FromSessionID, t),
				Through: events.Position{Seq: seq}},
		}
	}
	return f
}
