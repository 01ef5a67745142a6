package jetlog_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
)

// TestWatermillSuite runs Watermill's own suite on the public adapter. Its topics are
// session ids there, and its messages state no fact.
func TestWatermillSuite(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	group := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		sub, err := log.NewSubscriber(jetlog.SubscriberConfig{Group: group, Sessions: true, AckWait: 5 * time.Second, NackPause: time.Millisecond})
		require.NoError(t, err)
		return log.NewPublisher(jetlog.PublisherConfig{Foreign: true}), sub
	}
	tests.TestPubSub(t, tests.Features{
		ConsumerGroups:  true,
		GuaranteedOrder: true,
		Persistent:      true,
	}, func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "test") }, group)
}
