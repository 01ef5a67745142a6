package deployment_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A node that systemd runs is started after a scrub of its data, as nats.sh starts one.
func TestSystemdScrubsANodeBeforeItStarts(t *testing.T) {
	f, err := os.Open("../../systemd/nats-server.service.d/scrub.conf")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	options, err := unit.DeserializeOptions(f)
	require.NoError(t, err)
	var starts []string
	for _, o := range options {
		if o.Name == "ExecStart" {
			starts = append(starts, o.Value)
		}
	}
	require.Equal(t, []string{"", "/usr/local/bin/turnledger scrub /var/lib/nats --report -- " +
		"/usr/sbin/nats-server -c /etc/nats-server.conf"}, starts)
}

// The unit is one that systemd reads, and its command line runs with its environment, in
// its own folder only, until it is told to stop.
func TestSystemdUnitRunsAsItIsWritten(t *testing.T) {
	f, err := os.Open("../../systemd/turnledger.service")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	options, err := unit.DeserializeOptions(f)
	require.NoError(t, err)
	of := map[string]string{}
	for _, o := range options {
		of[o.Section+"."+o.Name] = o.Value
	}
	for name, want := range map[string]string{"Service.NoNewPrivileges": "true", "Service.ProtectSystem": "strict",
		"Service.User": "turnledger", "Service.Restart": "always", "Install.WantedBy": "multi-user.target"} {
		require.Equal(t, want, of[name], name)
	}
	dir := filepath.Join(t.TempDir(), of["Service.StateDirectory"])
	line := strings.Fields(of["Service.ExecStart"])
	require.Equal(t, "/usr/local/bin/turnledger", line[0])
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), stack.Binary(t), line[1:]...)
	address := stack.FreeAddress(t)
	for _, setting := range strings.Fields(of["Service.Environment"]) {
		cmd.Env = append(cmd.Env, strings.NewReplacer("/var/lib/"+of["Service.StateDirectory"], dir, "127.0.0.1:8480",
			address).Replace(setting))
	}
	cmd.Dir = t.TempDir()
	var log strings.Builder
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	ready := func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	up := false
	for end := time.Now().Add(time.Minute); !up && time.Now().Before(end); {
		up = ready()
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	err = cmd.Wait()
	require.True(t, up, log.String())
	require.NoError(t, err, log.String())
	require.NotContains(t, log.String(), "no effect")
	require.DirExists(t, filepath.Join(dir, "nats"))
	left, err := os.ReadDir(cmd.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
