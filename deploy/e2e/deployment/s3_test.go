package deployment_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A store that speaks S3 holds a backup as a folder does.
func TestBackupInAStoreThatSpeaksS3(t *testing.T) {
	store := s3mem.New()
	require.NoError(t, store.CreateBucket("backups"))
	s3 := httptest.NewServer(gofakes3.New(store).Server())
	t.Cleanup(s3.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
	t.Setenv("AWS_REGION", "us-east-1")
	p := stack.Serve(t, nil)
	for i := range 3 {
		p.RecordExchange(t, "s", i)
	}
	place := []string{"s3://backups/nightly/1", "--endpoint", s3.URL}
	code, out, errs := stack.Run(t, append([]string{"backup", "--json", "--url", p.URL}, place...)...)
	require.Equal(t, stack.ExitDone, code, errs)
	require.NotContains(t, out+errs, "SECRET")
	var m struct{ Files []struct{ Name string } }
	require.NoError(t, json.Unmarshal([]byte(out), &m))
	require.Len(t, m.Files, 1)
	q := stack.Serve(t, nil)
	code, out, errs = stack.Run(t, append([]string{"restore", "--url", q.URL}, place...)...)
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "is there again: say it again")
	q.WaitReady(t)
	require.Equal(t, stack.Exchanges(3), q.Context(t, "s"))
	code, _, errs = q.Run(t, "restore", "s3://backups/nightly/2", "--endpoint", s3.URL)
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, "there is no manifest.json")
}
