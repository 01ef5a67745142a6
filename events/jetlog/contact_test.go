package jetlog_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
	jetwire "github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// A follower that a leader has never heard has no time, which reads as just now.
func TestAFollowerThatWasNeverHeardIsNoMajority(t *testing.T) {
	t.Parallel()
	follower := func(active time.Duration) *jetstream.PeerInfo { return &jetstream.PeerInfo{Active: active} }
	led := func(followers ...*jetstream.PeerInfo) *jetstream.ClusterInfo {
		return &jetstream.ClusterInfo{Leader: "n0", Replicas: followers}
	}
	require.True(t, jetlog.HeardMajority(led(follower(time.Millisecond), follower(time.Hour)), 3))
	require.False(t, jetlog.HeardMajority(led(follower(0), follower(time.Hour)), 3))
	require.False(t, jetlog.HeardMajority(led(follower(0), follower(0)), 3))
	require.False(t, jetlog.HeardMajority(led(&jetstream.PeerInfo{Active: 1, Offline: true}, follower(time.Hour)), 3))
}

// TestAQuestionThatFoundNobodyIsAskedAgain: who answers comes after the first question.
func TestAQuestionThatFoundNobodyIsAskedAgain(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	asked := 0
	sub := must.Get(nc.Subscribe("$JS.API.TEST", func(m *nats.Msg) {
		if asked++; asked > 1 {
			_ = m.Respond([]byte(`{"config":{}}`))
		}
	}))(t)
	var out struct{ Config any }
	conn := must.Get(jetwire.New(nc))(t)
	require.NoError(t, conn.Ask(deadline(t, hang.Limit), "TEST", nil, &out))
	require.NotNil(t, out.Config)
	require.NoError(t, sub.Drain())
}

// A leader that was elected a moment ago has not heard its followers yet, and one that is
// cut off never does.
func TestALeaderWithoutAMajorityIsAskedAgain(t *testing.T) {
	t.Parallel()
	nc := connectTo(t, plainServer(t, server.Options{})) // without JetStream, which would answer, too
	asked := 0
	sub, err := nc.Subscribe("$JS.API.STREAM.INFO.YOUNG", func(m *nats.Msg) {
		asked++
		_ = m.Respond(fmt.Appendf(nil, `{"config":{"num_replicas":3},"state":{"last_seq":7},"cluster":{"name":"c","leader":"a","replicas":[{"name":"b","active":%d},{"name":"c"}]}}`, asked-1))
	})
	require.NoError(t, err)
	head := must.Get(jetlog.Head(t.Context(), nc, "YOUNG"))(t)
	require.EqualValues(t, 7, head)
	require.NoError(t, sub.Unsubscribe())
	_, err = nc.Subscribe("$JS.API.STREAM.INFO.CUT", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"config":{"num_replicas":3},"state":{"last_seq":7},"cluster":{"name":"c","leader":"a","replicas":[{"name":"b"},{"name":"c"}]}}`))
	})
	require.NoError(t, err)
	_, err = jetlog.Head(t.Context(), nc, "CUT")
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	require.ErrorContains(t, err, "no majority")
}

// TestALeaderThatKnowsLessProvesNothing: a leader that was elected a moment ago may not have applied what was
// acknowledged. Its "not found" counts once its head has come to what was shown.
func TestALeaderThatKnowsLessProvesNothing(t *testing.T) {
	t.Parallel()
	nc := connectTo(t, plainServer(t, server.Options{}))
	answer := func(subject string, with func() []byte) {
		must.Get(nc.Subscribe("$JS.API."+subject, func(m *nats.Msg) { _ = m.Respond(with()) }))(t)
	}
	info := func(last int) []byte {
		return fmt.Appendf(nil, `{"config":{"num_replicas":3},"state":{"first_seq":1,"last_seq":%d,"messages":%[1]d},`+
			`"cluster":{"name":"c","leader":"a","replicas":[{"name":"b","active":1},{"name":"c"}]}}`, last)
	}
	none := func() []byte {
		return []byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`)
	}
	asked := 0
	answer("STREAM.MSG.GET.GROWS", none)
	answer("STREAM.INFO.GROWS", func() []byte { asked++; return info(asked) })
	missing := must.Get(jetlog.Missing(t.Context(), nc, "GROWS", 5, 9))(t)
	require.True(t, missing)
	require.Equal(t, 5, asked)
	answer("STREAM.MSG.GET.STAYS", none)
	answer("STREAM.INFO.STAYS", func() []byte { return info(3) })
	_, err := jetlog.Missing(t.Context(), nc, "STAYS", 5, 5)
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	require.ErrorContains(t, err, "knows less than is known")
}

// TestOneHeadIsEnough: whose leader is out of reach is silent for long, and is not waited for
// where another has told; where none tells it ends in time.
func TestOneHeadIsEnough(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	defer close(over)
	silent := func(context.Context) (uint64, error) { <-over; return 0, jetlog.ErrUnavailable }
	tells := func(context.Context) (uint64, error) { return 7, nil }
	refuses := func(context.Context) (uint64, error) { return 0, jetlog.ErrUnavailable }
	require.True(t, jetlog.AnyHead(t.Context(), time.Now().Add(time.Hour), silent, refuses, tells))
	require.False(t, jetlog.AnyHead(t.Context(), time.Now().Add(time.Hour), refuses, refuses))
	require.False(t, jetlog.AnyHead(t.Context(), time.Now().Add(time.Second), silent, refuses))
}

// TestAServerThatIsCutOffIsLeft: its clients are not told, and go on to another.
func TestAServerThatIsCutOffIsLeft(t *testing.T) {
	t.Parallel()
	c := natstest.StartFragileCluster(t)
	nc := c.Connect(t)
	log := c.LogOn(t, nc, 1)
	at := slices.IndexFunc(c.URLs(), func(url string) bool { return url == nc.ConnectedUrl() })
	stop := natstest.Run(t, log.Run)
	c.Isolate(t, at)
	hang.Until(t, func() bool {
		_, err := log.Head(t.Context(), 0)
		return err == nil && nc.ConnectedUrl() != c.URLs()[at]
	})
	stop()
}
