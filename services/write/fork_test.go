package write_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/write"
)

// A fork costs the same however long the session is: two events of less than 1 KB each, with headers and subject.
func TestAForkOfALongSessionIsTwoSmallEvents(t *testing.T) {
	t.Parallel()
	const turns = 5000
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	s := run(t, log)
	var all []decide.Start
	for i := range turns {
		all = append(all, wholeTurn("stem", fmt.Sprint(i)))
	}
	for _, made := range s.StartTurns(t.Context(), all) {
		require.NoError(t, made.Err)
	}
	before := head(t, log)
	require.EqualValues(t, turns, before)
	for i, fork := range []decide.ForkSession{
		{SessionID: "stem", RequestID: "last"},
		{SessionID: "stem", RequestID: "middle", TurnID: events.TurnID("stem", fmt.Sprint(turns/2))},
		{SessionID: "stem", RequestID: "first", BeforeTurnID: events.TurnID("stem", "1")},
	} {
		must.Get(s.ForkSession(t.Context(), fork))(t)
		require.EqualValues(t, before+2*uint64(i+1), head(t, log))
	}
	js := must.Get(jetstream.New(natstest.Connect(t, server)))(t)
	stream := must.Get(js.Stream(t.Context(), events.StreamName(0)))(t)
	for seq := before + 1; seq <= before+6; seq++ {
		m := must.Get(stream.GetMsg(t.Context(), seq))(t)
		size := len(m.Subject) + len(m.Data)
		for name, values := range m.Header {
			size += len(name) + len(values[0]) + len(": \r\n")
		}
		require.Less(t, size, 1<<10, "%v", m.Header)
	}
}

// Two sessions are forked to the same id at once, by two processes. The loser is refused. In one partition it leaves
// nothing; elsewhere its mark stays, and links nobody: the branch has the identity of its own root, whichever of the
// two is linked first.
func TestOfTwoForksToOneIDTheLoserChangesNothing(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			t.Parallel()
			server := natstest.Server(t)
			log := natstest.LogOn(t, server, partitions)
			services := []*write.Service{run(t, log), run(t, natstest.LogOn(t, server, partitions))}
			for i := range 30 {
				parents, child := []string{fmt.Sprint("a", i), fmt.Sprint("b", i)}, fmt.Sprint("child", i)
				won := race(t, services, parents, child)
				winner, loser := parents[won], parents[1-won]
				if log.Partition(loser) == log.Partition(child) {
					require.NotContains(t, typesOf(t, log, loser), events.TypeSessionBranched)
				}
				order := []string{loser, winner}
				if i%2 == 0 {
					order = []string{winner, loser}
				}
				for _, parent := range order {
					must.Get(services[i/2%2].LinkSession(t.Context(), parent, "of "+parent, ""))(t)
				}
				require.Equal(t, "of "+winner, ownerOf(t, log, child))
			}
		})
	}
}

// A process is killed between the mark and the fork. The request again, to another process and with another body, makes
// the branch of the mark, as it would have been; if others have taken its id meanwhile it is refused.
func TestAForkThatWasKilledAfterItsMark(t *testing.T) {
	t.Parallel()
	fork := decide.ForkSession{SessionID: "p", RequestID: "f", ChildID: "child"}
	fact := func(t *testing.T, log *jetlog.Log, session, kind string) events.Fact {
		t.Helper()
		for _, e := range logtest.Read(t, log, session) {
			if e.Type == kind {
				return e.Fact
			}
		}
		return nil
	}
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			t.Parallel()
			before := func(log *jetlog.Log) *write.Service {
				s := run(t, log)
				must.Get(s.StartTurn(t.Context(), wholeTurn("p", "r1")))(t)
				return s
			}
			whole := natstest.Log(t, partitions)
			must.Get(before(whole).ForkSession(t.Context(), fork))(t)
			mark := fact(t, whole, "p", events.TypeSessionBranched)

			for _, taken := range []bool{false, true} {
				server := natstest.Server(t)
				log := natstest.LogOn(t, server, partitions)
				s := before(log)
				must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{mark}}))(t)
				must.Get(s.StartTurn(t.Context(), wholeTurn("p", "r2")))(t)
				if taken {
					must.Get(s.StartTurn(t.Context(), wholeTurn("child", "r")))(t)
				}
				again := decide.ForkSession{
					SessionID: "p", RequestID: "f", ChildID: "other", TurnID: events.TurnID("p", "r2"),
				}
				made, err := run(t, natstest.LogOn(t, server, partitions)).ForkSession(t.Context(), again)
				require.Empty(t, typesOf(t, log, "other"))
				if taken {
					require.ErrorIs(t, err, decide.ErrSessionExists)
					require.Nil(t, fact(t, log, "child", events.TypeSessionForked))
					continue
				}
				require.NoError(t, err)
				require.Equal(t, "child", made.SessionID)
				require.False(t, made.Duplicate)
				forked := fact(t, whole, "child", events.TypeSessionForked)
				require.NotNil(t, forked)
				require.Equal(t, forked, fact(t, log, "child", events.TypeSessionForked))
				require.Equal(t, []string{events.TypeSessionForked}, typesOf(t, log, "child"))
			}
		})
	}
}

// race forks the parents to the child at once, each by a process of its own, and returns which one won.
func race(t *testing.T, services []*write.Service, parents []string, child string) (won int) {
	t.Helper()
	errs := make([]error, len(parents))
	for i, parent := range parents {
		must.Get(services[i].StartTurn(t.Context(), wholeTurn(parent, "r")))(t)
	}
	var all sync.WaitGroup
	for i, parent := range parents {
		all.Go(func() {
			_, errs[i] = services[i].ForkSession(t.Context(),
				decide.ForkSession{SessionID: parent, RequestID: "f", ChildID: child})
		})
	}
	all.Wait()
	won = slices.Index(errs, nil)
	require.GreaterOrEqual(t, won, 0)
	require.ErrorIs(t, errs[1-won], decide.ErrSessionExists)
	return won
}

func typesOf(t *testing.T, log *jetlog.Log, session string) (types []string) {
	t.Helper()
	for _, e := range logtest.Read(t, log, session) {
		types = append(types, e.Type)
	}
	return types
}

func ownerOf(t *testing.T, log *jetlog.Log, sessionID string) string {
	t.Helper()
	return must.Get(session.UpToLink(sessionID, log.Session(t.Context(), sessionID, 0, math.MaxUint64)))(t).Identity
}

// Whatever links a session has linked its branches, at any depth, when it is acknowledged. No eraser runs that would
// link them later.
func TestALinkIsThatOfAllBranchesAtOnce(t *testing.T) {
	t.Parallel()
	for name, link := range map[string]func(s *write.Service, c decide.Start) error{
		"a link": func(s *write.Service, c decide.Start) error {
			_, err := s.LinkSession(t.Context(), c.SessionID, c.IdentityID, "")
			return err
		},
		"a start": func(s *write.Service, c decide.Start) error {
			_, err := s.StartTurn(t.Context(), c)
			return err
		},
		"a start of several": func(s *write.Service, c decide.Start) error {
			return s.StartTurns(t.Context(), []decide.Start{c})[0].Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, on := range []string{"root", "b", "of b"} {
				log := natstest.Log(t, 4)
				s := run(t, log)
				must.Get(s.StartTurn(t.Context(), wholeTurn("root", "r")))(t)
				for _, fork := range [][]string{{"root", "b"}, {"b", "of b"}, {"root", "c"}} {
					must.Get(s.ForkSession(t.Context(),
						decide.ForkSession{SessionID: fork[0], RequestID: fork[1], ChildID: fork[1]}))(t)
				}
				c := wholeTurn(on, "links")
				c.IdentityID = "ada"
				require.NoError(t, link(s, c))
				for _, session := range []string{"root", "b", "of b", "c"} {
					require.Equal(t, "ada", ownerOf(t, log, session), "%s, linked on %s", session, on)
				}
			}
		})
	}
}

// beforeForks is a log with something that happens right before a branch's first event is appended.
type beforeForks struct {
	*jetlog.Log
	once func()
}

func (l *beforeForks) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	if slices.ContainsFunc(a.Facts, func(f events.Fact) bool { return f.Type() == events.TypeSessionForked }) {
		l.once()
	}
	return l.Log.Append(ctx, a)
}

// Another process links a tree while one of its sessions is forked: too late for the fork to see it, and too early to
// see the branch. Once the fork is acknowledged the branch is linked as well. No eraser runs that would link it later.
func TestABranchThatIsMadeWhileItsTreeIsLinked(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		for _, parent := range []string{"root", "twig"} {
			t.Run(fmt.Sprint(parent, " in ", partitions), func(t *testing.T) {
				t.Parallel()
				server := natstest.Server(t)
				log := natstest.LogOn(t, server, partitions)
				links := run(t, natstest.LogOn(t, server, partitions))
				must.Get(links.StartTurn(t.Context(), wholeTurn("root", "r")))(t)
				must.Get(links.ForkSession(t.Context(),
					decide.ForkSession{SessionID: "root", RequestID: "f", ChildID: "twig"}))(t)
				forks := runOn(t, &beforeForks{log, sync.OnceFunc(func() {
					must.Get(links.LinkSession(t.Context(), "root", "ada", ""))(t)
				})})
				made := must.Get(forks.ForkSession(t.Context(),
					decide.ForkSession{SessionID: parent, RequestID: "g", ChildID: "a"}))(t)
				require.False(t, made.Duplicate)
				require.Equal(t, "ada", made.Identity)
				require.Equal(t, "ada", ownerOf(t, log, "a"))
			})
		}
	}
}

// Forks of one session that come at once share appends, and each makes its own branch. One that comes twice is made
// once.
func TestForksAtOnceShareAnAppend(t *testing.T) {
	t.Parallel()
	const many = 50
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	must.Get(run(t, log).StartTurn(t.Context(), wholeTurn("stem", "r1")))(t)
	held := &slow{Log: log, entered: make(chan struct{}), released: make(chan struct{})}
	s := runOn(t, held)
	made := make([]bool, many)
	var all sync.WaitGroup
	for n := range many {
		all.Go(func() {
			is, err := s.ForkSession(t.Context(), decide.ForkSession{
				SessionID: "stem", RequestID: fmt.Sprint("f", n/2), ChildID: fmt.Sprint("child", n/2),
			})
			if assert.NoError(t, err) {
				assert.Equal(t, fmt.Sprint("child", n/2), is.SessionID)
				made[n] = !is.Duplicate
			}
		})
		if n == 0 {
			<-held.entered
		}
	}
	// All others come while the first is on its way.
	hang.Until(t, func() bool { return s.Forking("stem") == many-1 })
	close(held.released)
	all.Wait()
	for n := 0; n < many; n += 2 {
		require.NotEqual(t, made[n], made[n+1], "one of two calls with one request makes the branch")
	}
	require.EqualValues(t, 1+many, head(t, log), "a mark and a fork for each branch")
	js := must.Get(jetstream.New(natstest.Connect(t, server)))(t)
	stream := must.Get(js.Stream(t.Context(), events.StreamName(0)))(t)
	appends := map[string]int{}
	for seq := uint64(2); seq <= 1+many; seq++ {
		m := must.Get(stream.GetMsg(t.Context(), seq))(t)
		appends[m.Header.Get("Turnledger-Append")]++
	}
	require.Less(t, len(appends), many/4, "%v", appends)
	_, err := s.ForkSession(t.Context(), decide.ForkSession{SessionID: "stem", RequestID: "g", ChildID: "child0"})
	require.ErrorIs(t, err, decide.ErrSessionExists)
}
