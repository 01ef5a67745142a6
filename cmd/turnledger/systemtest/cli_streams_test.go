package systemtest_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

func TestStreamsOfAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "serve", "--data-dir", stack.DataDir(t), "--partitions", "2")
	p.RecordTurn(t, "s", "r", "q", "a")
	code, out, errs := p.Run(t, "streams", "plan")
	require.Equal(t, stack.ExitDone, code, errs)
	require.Regexp(t, `TURNS-0 +log +file +1 `, out)
	require.Contains(t, out, "KV_TURNLEDGER")
	for _, verb := range []string{"plan", "apply"} {
		code, out, errs = p.Run(t, "streams", verb, "--partitions", "8")
		require.Equal(t, stack.ExitFailed, code, verb)
		require.Contains(t, out+errs, "made with 2 partitions, which is fixed for ever", verb)
		code, out, errs = p.Run(t, "streams", verb, "--replicas", "3")
		require.Equal(t, stack.ExitFailed, code, verb)
		require.Contains(t, out+errs, "set TURNLEDGER_NATS_URL", verb)
	}
	code, out, errs = p.Run(t, "streams", "plan", "--replicas", "3", "--json")
	require.Equal(t, stack.ExitFailed, code, errs)
	var plan struct {
		Partitions int
		Streams    []struct {
			Name    string
			Changes []struct{ What, Have, Want, Refused string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &plan))
	require.Equal(t, 2, plan.Partitions)
	require.Equal(t, "replicas", plan.Streams[0].Changes[0].What)
	require.NotEmpty(t, plan.Streams[0].Changes[0].Refused)
}
