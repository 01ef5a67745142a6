package systemtest_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// Root and branches stand in one partition and in different ones. Contexts, turns and as-of answers are right while the
// projector is behind, after it was killed and its store emptied, and when another one feeds it; then lists are, too.
func TestBranchesWhoseViewIsBehind(t *testing.T) {
	t.Parallel()
	nats, redis := stack.FreeAddress(t), redistest.Start(t)
	env := []string{"TURNLEDGER_PARTITIONS=4", "TURNLEDGER_REDIS_URL=" + redis.URL(),
		"TURNLEDGER_POSTGRES_URL=" + pg.URL(t)}
	b := &branching{T: t, shown: map[string][]string{}, own: map[string][]string{}}
	b.p = stack.Start(t, append(stack.ServeNATS(nats), env...), "serve", "--roles", "api,context,eraser",
		"--data-dir", stack.DataDir(t))
	feeds := func() *stack.Process {
		return stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "recent,audit")
	}
	first := feeds()
	b.p.LinkIdentity(t, "root", "ada")
	gone := b.say("root", "one")
	b.say("root", "two")
	near, far := named("near", true), named("far", false)
	b.fork("root", near)
	b.fork("root", far)
	b.say(near, "of near")
	b.say(far, "of far")
	b.check()
	first.WaitCaughtUp(t, "recent", "audit")
	b.checkLists()

	first.Kill(t)
	b.say("root", "three")
	b.fork(far, named("twig", true))
	b.say(named("twig", true), "of the twig")
	b.p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("root")+"/turns/"+gone+"/redact", nil)
	b.redacted = "one"
	b.check()

	store, err := rueidis.NewClient(rueidis.MustParseURL(redis.URL()))
	require.NoError(t, err)
	defer store.Close()
	require.NoError(t, store.Do(t.Context(), store.B().Flushall().Build()).Error())
	b.check()
	b.say(near, "of near again")
	b.check()

	second := feeds()
	b.check()
	second.WaitCaughtUp(t, "recent", "audit")
	b.check()
	b.checkLists()
	code, out, errs := second.Run(t, "projections", "verify")
	require.Equal(t, stack.ExitDone, code, out+errs)
}

// named returns a session in the partition of root, or in another one.
func named(name string, beside bool) string {
	const partitions = 4
	for i := 0; ; i++ {
		id := fmt.Sprint(name, i)
		if (events.Partition(id, partitions) == events.Partition("root", partitions)) == beside {
			return id
		}
	}
}

// branching is a tree of sessions: what each shows, what it has itself, and what was shown at each moment.
type branching struct {
	*testing.T
	p          *stack.Process
	shown, own map[string][]string
	past       []shownThen
	redacted   string
}

type shownThen struct {
	session string
	asOf    map[string]any
	shown   []string
}

func (b *branching) fork(session, branch string) {
	b.Helper()
	b.p.Must(b, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/fork",
		map[string]any{"request_id": branch, "session_id": branch})
	b.shown[branch] = slices.Clone(b.shown[session])
}

func (b *branching) say(session, text string) (turn string) {
	b.Helper()
	made := b.p.Must(b, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/turns",
		map[string]any{"request_id": text, "question_neutral": text, "answer_neutral": "answer"})
	b.shown[session], b.own[session] = append(b.shown[session], text), append(b.own[session], text)
	for _, asOf := range []map[string]any{
		{"position": made["position"]}, {"time": time.Now().UTC().Format(time.RFC3339Nano)},
	} {
		b.past = append(b.past, shownThen{session, asOf, slices.Clone(b.shown[session])})
	}
	return made["turn_id"].(string)
}

// stands returns texts without the one that was redacted.
func (b *branching) stands(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return text == b.redacted })
}

func questions(turns any) (out []string) {
	for _, turn := range turns.([]any) {
		out = append(out, turn.(map[string]any)["question_neutral"].(string))
	}
	return out
}

func (b *branching) check() {
	b.Helper()
	prompt := func(session string, asOf map[string]any) (out []string) {
		body := map[string]any{"message": "now", "max_messages": 100}
		if asOf != nil {
			body["as_of"] = asOf
		}
		for i, m := range b.p.BuildContext(b, session, body)["messages"].([]any) {
			if i%2 == 0 {
				out = append(out, m.(map[string]any)["content"].(string))
			}
		}
		return out[:len(out)-1]
	}
	for session, texts := range b.shown {
		require.Equal(b, b.stands(texts), prompt(session, nil), session)
		require.Equal(b, b.stands(texts), questions(b.p.Get(b, stack.SessionPath(session)+"/turns")["turns"]), session)
	}
	for _, then := range b.past {
		require.Equal(b, b.stands(then.shown), prompt(then.session, then.asOf), "%s as of %v", then.session, then.asOf)
	}
}

// checkLists asks for the identity's sessions and turns.
func (b *branching) checkLists() {
	b.Helper()
	var all []string
	last := map[string]string{}
	for session, own := range b.own {
		all, last[session] = append(all, own...), own[len(own)-1]
	}
	require.ElementsMatch(b, b.stands(all), questions(b.p.Get(b, "/v1/identities/ada/turns?limit=100")["turns"]))
	listed := map[string]string{}
	for _, s := range b.p.Get(b, "/v1/sessions?identity_id=ada")["sessions"].([]any) {
		s := s.(map[string]any)
		listed[s["session_id"].(string)] = s["last_turn"].(map[string]any)["question_neutral"].(string)
	}
	require.Equal(b, last, listed)
}
