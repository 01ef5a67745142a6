package systemtest_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

func TestStreamsOfAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	out := p.Done(t, "streams", "plan")
	require.Regexp(t, `TURNS-0 +log +file +1 `, out)
	require.Contains(t, out, "KV_TURNLEDGER")
	for _, verb := range []string{"plan", "apply"} {
		code, out, errs := p.Run(t, "streams", verb, "--partitions", "16")
		require.Equal(t, stack.ExitFailed, code, verb)
		require.Contains(t, out+errs, "made with 8 partitions, which is fixed for ever", verb)
		code, out, errs = p.Run(t, "streams", verb, "--replicas", "3")
		require.Equal(t, stack.ExitFailed, code, verb)
		require.Contains(t, out+errs, "set TURNLEDGER_NATS_URL", verb)
	}
	code, out, errs := p.Run(t, "streams", "plan", "--replicas", "3", "--json")
	require.Equal(t, stack.ExitFailed, code, errs)
	var plan struct {
		Partitions int
		Streams    []struct {
			Name    string
			Changes []struct{ What, Have, Want, Refused string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &plan))
	require.Equal(t, 8, plan.Partitions)
	require.Equal(t, "replicas", plan.Streams[0].Changes[0].What)
	require.NotEmpty(t, plan.Streams[0].Changes[0].Refused)
}
