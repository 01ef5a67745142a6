package deployment_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// userLoad is the load of users who each remember what was acknowledged to them, and check after every
// step whether the next context has it.
type userLoad struct {
	deployment *deployment
	patience   time.Duration // of a call; 0: it is tried again once, at once, elsewhere
	stop       context.CancelFunc
	group      *errgroup.Group

	mu       sync.Mutex
	sessions map[string][]*userTurn // what a user alone says in a session of his own
	retried  int
	listed   int // readings of the audit tables that were answered
}

// userTurn is a turn, as its user knows it: without an answer it is pending.
type userTurn struct {
	request, question, answer string
	redacted                  bool
}

// turnsOfASession is how many turns a session gets before its user begins another.
const turnsOfASession = 30

// startUsers starts users who call a deployment until finish.
func startUsers(f *deployment, seed uint64, users int, patience time.Duration) *userLoad {
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	c := &userLoad{deployment: f, patience: patience, stop: stop, sessions: map[string][]*userTurn{}}
	c.group = &errgroup.Group{}
	for u := range users {
		user := &user{userLoad: c, rng: rand.New(rand.NewPCG(seed, uint64(u))), name: fmt.Sprint("u", u)}
		c.group.Go(func() error {
			for ctx.Err() == nil {
				// A step that was begun is ended, so that the answer to each call is known.
				if err := user.step(context.WithoutCancel(ctx)); err != nil {
					return fmt.Errorf("seed %d, %s: %w", seed, user.name, err)
				}
			}
			if err := user.readAudit(context.WithoutCancel(ctx)); err != nil {
				return fmt.Errorf("seed %d, %s, at the end: %w", seed, user.name, err)
			}
			return nil
		})
	}
	f.t.Cleanup(func() { stop(); _ = c.group.Wait() })
	return c
}

// finish ends the load, and fails where a user was shown anything other than what was acknowledged.
func (c *userLoad) finish() {
	c.deployment.t.Helper()
	c.stop()
	require.NoError(c.deployment.t, c.group.Wait())
	turns := 0
	for _, s := range c.sessions {
		turns += len(s)
	}
	c.deployment.t.Logf("%d turns in %d sessions, %d calls tried again, %d readings of the audit", turns,
		len(c.sessions), c.retried, c.listed)
}

// user does one thing after the other.
type user struct {
	*userLoad
	rng   *rand.Rand
	name  string
	turns int
}

func (u *user) session() (id, identity string) {
	n := u.turns / turnsOfASession
	id = fmt.Sprintf("%s-%d", u.name, n)
	if n%2 == 0 {
		identity = u.name
	}
	return id, identity
}

func (u *user) step(ctx context.Context) error {
	id, identity := u.session()
	t := &userTurn{request: fmt.Sprint("r", u.turns), question: fmt.Sprint("question ", u.turns)}
	u.turns++
	if _, chats := u.deployment.processes[roleChat]; chats && u.rng.IntN(10) == 0 {
		return u.chat(ctx, id+"-chat", t)
	}
	body := map[string]any{"request_id": t.request, "question_neutral": t.question}
	if identity != "" {
		body["identity_id"] = identity
	}
	begun, err := u.call(ctx, roleAPI, http.MethodPost, stack.SessionPath(id)+"/turns", body)
	if err != nil {
		return err
	}
	u.note(id, t)
	if err := u.checkContext(ctx, id); err != nil {
		return err
	}
	path := fmt.Sprint(stack.SessionPath(id), "/turns/", begun["turn_id"])
	if u.rng.IntN(10) == 0 {
		again, err := u.call(ctx, roleAPI, http.MethodPost, stack.SessionPath(id)+"/turns", body)
		if err != nil || again["turn_id"] != begun["turn_id"] || again["duplicate"] != true {
			return fmt.Errorf("%s of %s again: %v %w", t.request, id, again["turn_id"], errors.Join(err, errUnexpected))
		}
	}
	if u.rng.IntN(10) > 0 {
		answer := "answer to " + t.question
		if _, err := u.call(ctx, roleAPI, http.MethodPost, path+"/finalize",
			map[string]any{"answer_neutral": answer}); err != nil {
			return err
		}
		t.answer = answer
	}
	if u.rng.IntN(20) == 0 {
		if _, err := u.call(ctx, roleAPI, http.MethodPost, path+"/redact", map[string]any{}); err != nil {
			return err
		}
		t.redacted = true
	}
	if u.rng.IntN(10) == 0 {
		if _, err := u.checkAudit(ctx); err != nil {
			return err
		}
	}
	return u.checkContext(ctx, id)
}

// readAudit asks for the audit tables until they answer. Whatever was away while the user wrote, they hold all of it.
func (u *user) readAudit(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < 2*time.Minute; u.deployment.wait(50 * time.Millisecond) {
		if answered, err := u.checkAudit(ctx); answered || err != nil {
			return err
		}
	}
	return fmt.Errorf("the audit tables do not answer: %w", errUnexpected)
}

// checkAudit reads all turns of the user from the audit tables. They are all that was acknowledged, or
// the tables are away, and the answer says so.
func (u *user) checkAudit(ctx context.Context) (answered bool, err error) {
	ps := u.deployment.ofRole(roleContext)
	status, out, err := ps[u.rng.IntN(len(ps))].Call(ctx, http.MethodGet, "/v1/identities/"+u.name+"/turns?limit=10000",
		nil)
	if err != nil || status == http.StatusServiceUnavailable {
		return false, nil // away
	}
	var got, want []string
	for _, x := range out["turns"].([]any) {
		got = append(got, fmt.Sprint(x.(map[string]any)["question_neutral"]))
	}
	for n := 0; n*turnsOfASession < u.turns; n += 2 { // those that are linked
		for _, t := range u.acknowledged(fmt.Sprintf("%s-%d", u.name, n)) {
			if !t.redacted {
				want = append(want, t.question)
			}
		}
	}
	if status != http.StatusOK || !slices.Equal(got, want) {
		return false, fmt.Errorf("turns of %s: %d %q, not %q: %w", u.name, status, got, want, errUnexpected)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.listed++
	return true, nil
}

// acknowledged returns what was acknowledged in a session. Only its own user writes there.
func (u *user) acknowledged(id string) []*userTurn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sessions[id]
}

// chat says something to the model.
func (u *user) chat(ctx context.Context, id string, t *userTurn) error {
	out, err := u.call(ctx, roleChat, http.MethodPost, "/v1/threads/"+id+"/messages",
		map[string]any{"request_id": t.request, "content": t.question})
	if err != nil {
		return err
	}
	t.answer = out["content"].(string)
	u.note(id, t)
	return u.checkContext(ctx, id)
}

func (u *user) note(id string, t *userTurn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sessions[id] = append(u.sessions[id], t)
}

var errUnexpected = errors.New("other than what was acknowledged")

// checkContext asks for the next context, which must hold all that was acknowledged, in order.
func (u *user) checkContext(ctx context.Context, id string) error {
	out, err := u.call(ctx, roleContext, http.MethodPost, stack.SessionPath(id)+"/context",
		map[string]any{"message": "now", "include_pending": true, "max_messages": 1000})
	if err != nil {
		return err
	}
	var want []string
	for _, t := range u.acknowledged(id) {
		if t.redacted {
			continue
		}
		want = append(want, "user: "+t.question)
		if t.answer != "" {
			want = append(want, "assistant: "+t.answer)
		}
	}
	if got := stack.MessageLines(out["messages"]); !slices.Equal(append(want, "user: now"), got) {
		return fmt.Errorf("context of %s (%v): %q, not %q: %w", id, out["source"], got, want, errUnexpected)
	}
	return nil
}

// attemptLimit is how long one try of a call may take.
const attemptLimit = 40 * time.Second

// call asks a process of a role, and then another one where the first does not answer or says that it
// can't. Without patience a third one is asked only where the log itself stood still meanwhile.
func (u *user) call(ctx context.Context, r string, method, path string, body any) (map[string]any, error) {
	u.deployment.calls.RLock()
	defer u.deployment.calls.RUnlock()
	at := u.rng.IntN(2)
	began := time.Now()
	forgiven := 0 // tries while the log itself stood still
	for tries := 1; ; tries++ {
		ps, asked := u.deployment.ofRole(r), time.Now()
		attempt, cancel := context.WithTimeout(ctx, attemptLimit)
		status, out, err := ps[(at+tries)%len(ps)].Call(attempt, method, path, body)
		cancel()
		if out["code"] == "log_unavailable" && u.deployment.log.stoodStill(asked) &&
			time.Since(began) < 3*time.Minute {
			forgiven++
		}
		switch {
		case err == nil && status < http.StatusMultipleChoices:
			return out, nil
		case err == nil && status < http.StatusInternalServerError:
			return nil, fmt.Errorf("%s %s: %d %v", method, path, status, out["code"])
		case u.patience == 0 && tries-forgiven >= 2:
			return nil, fmt.Errorf("%s %s by %s, tried again at %s, %s after the first: %d %v (%w)", method, path, r,
				asked.Format(time.StampMilli), asked.Sub(began), status, out["code"], cmp.Or(err, errUnexpected))
		case u.patience > 0 && time.Since(began) > u.patience:
			return nil, fmt.Errorf("%s %s by %s, for %s: %d %v %w", method, path, r, u.patience, status, out["code"],
				err)
		}
		u.mu.Lock()
		u.retried++
		u.mu.Unlock()
		if u.patience > 0 {
			u.deployment.wait(50 * time.Millisecond)
		}
	}
}
