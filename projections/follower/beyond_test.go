package follower_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/follower"
)

// A checkpoint that the log has not reached is of another stream, such as one before a restore. Who comes with it is
// told at once. Waiting until the log is there would leave out all that came up to it.
func TestACheckpointThatTheLogHasNotReachedIsOfAnotherStream(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	writeTurns(t, log, "s", 1, 10)
	f := follower.New(log, follower.Config{Rules: rules})
	f.Decide(func(*jetlog.Message) {})
	natstest.Run(t, f.Run)
	<-f.Started(0)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	for name, next := range readers(t, f, newest(t, log)+10) {
		must.Fail(next(ctx))(t, jetlog.ErrStream, name)
	}
}

func writeTurns(t *testing.T, log *jetlog.Log, name string, turns, length int) {
	t.Helper()
	text := events.Question{QuestionNeutral: strings.Repeat("q", length)}
	for n := range turns {
		id := fmt.Sprint(name, n)
		f := &events.TurnStarted{TurnID: events.TurnID(id, "r"), SessionID: id, RequestID: "r", Question: text}
		must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
	}
}
