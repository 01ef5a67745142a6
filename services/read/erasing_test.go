package read_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read"
)

// betweenHeadAndRead is a log in which something happens right after a read has taken its
// barrier.
type betweenHeadAndRead struct {
	*jetlog.Log
	happens func()
}

func (l *betweenHeadAndRead) Head(ctx context.Context, partition int) (events.Position, error) {
	head, err := l.Log.Head(ctx, partition)
	l.happens()
	return head, err
}

// A session is erased while it is read: the redaction of a turn is gone from the log
// already, its text is not. It must not be shown.
func TestAReadInTheMiddleOfAnErasure(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	add := func(f events.Fact) events.Position {
		return natstest.Append(t, log, f)
	}
	id := events.TurnID("s", "r1")
	add(&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1",
		Question: events.Question{QuestionNeutral: "SECRET"}})
	add(&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "SECRET"}})
	redaction := add(decide.Redact{TurnID: id}.On(viewtest.Folded(t, log, rules, "s", 2, 10)).Facts[0])
	before := viewtest.Folded(t, log, rules, "s", 2, 10)

	erasing := &betweenHeadAndRead{Log: log, happens: func() {}}
	for name, view := range map[string]read.View{"from the log": nil,
		"from a view and its tail": &viewtest.Still{State: before, At: 2}} {
		erasing.happens = func() {
			add(&events.SessionErased{SessionID: "s", ReceiptID: "receipt"})
			must.Get(overwrite.On(log).Erase(t.Context(), redaction))(t)
		}
		reader := read.New(erasing, read.Config{Rules: rules, View: view})
		reading, err := reader.Read(t.Context(), services.Ask{SessionID: "s", Shown: 20})
		require.NoError(t, err, name)
		require.NotZero(t, reading.State.Erased, name)
		require.Empty(t, reading.State.Turns, name)
		require.GreaterOrEqual(t, reading.Position.Seq, reading.State.Erased, name)
	}
}

// One process erases an identity, another reads right after the answer, whether it follows
// the log or not, and wherever the identity's own events stand.
func TestAReadRightAfterAnIdentityIsErased(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		s := natstest.Server(t)
		erasing, reading := natstest.LogOn(t, s, partitions), natstest.LogOn(t, s, partitions)
		add := func(f events.Fact) events.Position {
			ack := must.Get(erasing.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
			require.NoError(t, erasing.Durable(t.Context(), ack.Position))
			return ack.Position
		}
		var last events.Position
		names := make([]string, 300)
		for i := range names {
			names[i] = fmt.Sprint("s", i)
			id := events.TurnID(names[i], "r")
			add(&events.TurnStarted{TurnID: id, SessionID: names[i], RequestID: "r",
				Question: events.Question{QuestionNeutral: "SECRET"}})
			add(&events.TurnFinalized{TurnID: id, SessionID: names[i], Answer: events.Answer{AnswerNeutral: "SECRET"}})
			last = add(&events.SessionLinked{SessionID: names[i], IdentityID: "of " + names[i]})
		}
		var view read.View
		for i, session := range names {
			if i == len(names)/2 {
				view = fed(t, reading, last)
			}
			reader := read.New(reading, read.Config{Rules: rules, View: view})
			ask := services.Ask{SessionID: session, Shown: 20}
			r := must.Get(reader.Read(t.Context(), ask))(t)
			require.Len(t, r.State.Turns, 1)
			add(&events.IdentityErased{IdentityID: "of " + session, ReceiptID: "receipt"})
			r = must.Get(reader.Read(t.Context(), ask))(t)
			require.Empty(t, r.State.Turns, "%s of %d partitions", session, partitions)
		}
	}
}
