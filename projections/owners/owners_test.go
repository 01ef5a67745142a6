package owners_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/owners"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func linked(session, identity string) *events.SessionLinked {
	return &events.SessionLinked{SessionID: session, IdentityID: identity}
}

// sessions returns what an index knows of an identity when it has come to the end of the log.
func sessions(t *testing.T, log *jetlog.Log, x *owners.Index, identity string) (out []string) {
	t.Helper()
	for k := range log.Partitions() {
		require.NoError(t, x.Reached(t.Context(), must.Get(log.Head(t.Context(), k))(t)))
		for _, s := range must.Get(x.Sessions(t.Context(), identity, k))(t) {
			out = append(out, s.Session)
		}
	}
	return out
}

// An index knows the links from before it began and those that came since, each session once and in the log's order.
// The first link of a session stands, and a link behind the erasure is none.
func TestTheIndexKnowsTheSessionsOfAnIdentity(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	natstest.Append(t, log, turntest.Started("b", "r", "q"), linked("b", "ada"), linked("a", "ada"),
		linked("other", "bob"))
	natstest.Append(t, log, linked("other", "ada"), &events.SessionErased{SessionID: "gone", ReceiptID: "r"},
		linked("gone", "ada"))
	x := owners.New(log, nil)
	natstest.Run(t, func(ctx context.Context) error { return x.Run(ctx) })
	require.Equal(t, []string{"b", "a"}, sessions(t, log, x, "ada"))
	natstest.Append(t, log, linked("late", "ada"), linked("bob's", "bob"))
	require.Equal(t, []string{"b", "a", "late"}, sessions(t, log, x, "ada"))
	require.Equal(t, []string{"other", "bob's"}, sessions(t, log, x, "bob"))
	require.Empty(t, sessions(t, log, x, "nobody"))
}

// A foreign publisher states a link with the right id and no body. It links nothing, and does not hide the link that
// comes after it.
func TestALinkWithoutEffectHidesNoOther(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	natstest.Append(t, log, turntest.Started("a", "r", "q"))
	link := must.Get(events.Encode(linked("a", "ada"), time.Now()))(t)
	header := nats.Header(link.Header)
	header.Del(events.HeaderMsgID)
	nc := natstest.Connect(t, s)
	must.Get(nc.RequestMsg(&nats.Msg{Subject: link.Subject, Header: header, Data: []byte("{}")}, hang.Limit))(t)
	natstest.Append(t, log, linked("a", "ada"))
	x := owners.New(log, nil)
	natstest.Run(t, func(ctx context.Context) error { return x.Run(ctx) })
	require.Equal(t, []string{"a"}, sessions(t, log, x, "ada"))
}

// The others see every event, and again what one of them failed at. No link is known twice for that, and nothing counts
// as known before the others have seen it.
func TestTheOthersOfAnIndexSeeEveryEvent(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	natstest.Append(t, log, linked("a", "ada"), linked("b", "ada"))
	x := owners.New(log, nil)
	var seen atomic.Int64
	var failed atomic.Bool
	natstest.Run(t, func(ctx context.Context) error {
		return x.Run(ctx, func(_ context.Context, batch []jetlog.Message) error {
			if !failed.Swap(true) {
				return errors.New("not now")
			}
			seen.Add(int64(len(batch)))
			return nil
		})
	})
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, x.Reached(brief, events.Position{Seq: 2}), context.DeadlineExceeded)
	require.Equal(t, []string{"a", "b"}, sessions(t, log, x, "ada"))
	require.EqualValues(t, 2, seen.Load())
}
