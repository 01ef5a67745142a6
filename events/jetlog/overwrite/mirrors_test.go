package overwrite_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
)

// The server lets mirrors answer direct reads. This one holds one session only, as one
// that is behind lacks the last events.
func TestNoReadBelievesAMirror(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	before := natstest.LogOn(t, s, 1)
	add := func(f events.Fact) jetlog.Ack {
		ack := must.Get(before.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
		require.NoError(t, before.Durable(t.Context(), ack.Position))
		return ack
	}
	add(logtest.Fact("copied", "r1"))
	nc := natstest.Connect(t, s)
	js := must.Get(jetstream.New(nc))(t)
	copied := events.SessionSubject("copied")
	must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "COPY", Mirror: &jetstream.StreamSource{Name: events.StreamName(0), FilterSubject: copied},
	}))(t)
	hang.Until(t, func() bool {
		m, err := nc.Request("$JS.API.DIRECT.GET."+events.StreamName(0), []byte(`{"last_by_subj":"`+copied+`"}`),
			time.Second)
		return err == nil && m.Header.Get(jetstream.StreamHeader) == "COPY"
	}, "the mirror answers")
	last := add(logtest.Fact("other", "r1")).Position

	since := natstest.LogOn(t, s, 1)
	for range 50 {
		require.Len(t, logtest.IDs(t, since, "other"), 1)
		require.Len(t, logtest.IDs(t, since, "copied"), 1)
		head := must.Get(since.Head(t.Context(), 0))(t)
		require.Equal(t, last, head)
		seq := must.Get(since.SeqAt(t.Context(), 0, time.Now().Add(-time.Hour)))(t)
		require.Zero(t, seq)
		require.Len(t, logtest.IDs(t, before, "copied"), 1)
	}
	require.Len(t, logtest.IDs(t, before, "other"), 1, "one that was open before has learned of it")
}

// What a mirror does not copy it is not waited for, and a mirror of a mirror holds what that
// does. A stream of another domain is another log's, whatever its name.
func TestWhichStreamsMirrorASubject(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	nc := natstest.Connect(t, s)
	js := must.Get(jetstream.New(nc))(t)
	// The server would wait for the other domain when it stops.
	_, err := nc.Subscribe("$JS.elsewhere.API.>", func(m *nats.Msg) { _ = m.Respond([]byte(`{"error":{"code":503}}`)) })
	require.NoError(t, err)
	mirror := func(name string, of jetstream.StreamSource) {
		must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Mirror: &of}))(t)
	}
	own, other := events.SessionSubject("own"), events.SessionSubject("other")
	bucket := own[:strings.LastIndex(own, ".")]
	turns := events.StreamName(0)
	mirror("ALL", jetstream.StreamSource{Name: turns})
	mirror("BUCKET", jetstream.StreamSource{Name: turns, FilterSubject: bucket + ".*"})
	mirror("TURNS", jetstream.StreamSource{Name: turns,
		SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "turns.>", Destination: "turns.>"}}})
	mirror("ALL2", jetstream.StreamSource{Name: "ALL"})
	mirror("OTHER", jetstream.StreamSource{Name: turns, FilterSubject: other})
	mirror("OTHER2", jetstream.StreamSource{Name: "OTHER"})
	mirror("IDENTITIES", jetstream.StreamSource{Name: turns,
		SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "identities.*.*",
			Destination: "identities.{{wildcard(1)}}.{{wildcard(2)}}"}}})
	mirror("FOREIGN", jetstream.StreamSource{Name: turns,
		External: &jetstream.ExternalStream{APIPrefix: "$JS.elsewhere.API"}})

	ack := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("own", "r1")}}))(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got, err := overwrite.On(log).Mirrors(t.Context(), own, ack.Position)
		assert.NoError(c, err)
		assert.ElementsMatch(c, []string{"ALL", "ALL2", "BUCKET", "TURNS"}, got)
	}, hang.Limit, 10*time.Millisecond)
	require.NotEqual(t, bucket, other[:strings.LastIndex(other, ".")])
	_, err = overwrite.On(log).Mirrors(t.Context(), other, ack.Position)
	require.ErrorIs(t, err, jetlog.ErrUnavailable, "one that copies it is waited for")
}
