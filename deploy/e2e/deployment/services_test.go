package deployment_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// stage runs services of docker-compose.yml as processes, with their own command lines and environments. It changes
// only addresses, and the folders of secrets and keys.
type stage struct {
	t       *testing.T
	compose *types.Project
	binary  string
	secrets string
	volume  string // what is mounted where the keys are
	given   map[string]string
	// grpc is the address of Weaviate's gRPC, which stands in no file: it is the one by default.
	grpc string
}

// mounted is where the keys are in a container.
const mounted = "/var/lib/turnledger"

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, compose: compose(t), binary: stack.Binary(t), secrets: secretsIn(t), volume: t.TempDir()}
	var hosts []string
	for i, node := range cluster(t, s.secrets) {
		hosts = append(hosts, fmt.Sprintf("nats-%d:4222", i+1), strings.TrimPrefix(node.ClientURL(), "nats://"))
	}
	model := modeltest.New(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "as asked"} })
	weaviate := startWeaviate(t, s.compose.Services["weaviate"], s.secrets)
	s.grpc = weaviate.GRPC()
	s.given = map[string]string{
		"TURNLEDGER_MODEL_URL": model.URL + "/v1", "TURNLEDGER_MODEL_NAME": "scripted",
		"TURNLEDGER_WEAVIATE_URL": weaviate.URL(), "TURNLEDGER_EMBED_URL": embeddingstest.Start(t).URL(),
	}
	for name, value := range map[string]string{
		"nats-url":  strings.NewReplacer(hosts...).Replace(secretOf(t, s.secrets, "nats-url")),
		"redis-url": redistest.Start(t).URL(), "postgres-url": pg.URL(t), "model-key": "MODELKEY",
		"embed-key": "EMBEDKEY",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(s.secrets, name), []byte(value+"\n"), 0o600))
	}
	return s
}

// environment of a service. Nothing of the test's own is in it.
func (s *stage) environment(service string) map[string]string {
	out := map[string]string{}
	places := strings.NewReplacer(mounted, s.volume, "/run/secrets", s.secrets)
	for name, value := range s.compose.Services[service].Environment {
		out[name] = places.Replace(*value)
		if given, ok := s.given[name]; ok {
			out[name] = given
		}
	}
	if out["TURNLEDGER_WEAVIATE_URL"] != "" {
		out["TURNLEDGER_WEAVIATE_GRPC"] = s.grpc
	}
	return out
}

// command is a service with more arguments, in an empty folder.
func (s *stage) command(service string, env map[string]string, args ...string) *exec.Cmd {
	c := s.compose.Services[service]
	line := append(append([]string{}, c.Entrypoint...), c.Command...)
	if len(args) > 0 {
		line = append(append([]string{}, c.Entrypoint...), args...)
	}
	if len(c.Entrypoint) > 0 {
		line = line[1:] // the program
	}
	// Stopped by a signal, once: the second ends the process at once.
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), s.binary, line...)
	cmd.Dir, cmd.Env = s.t.TempDir(), []string{}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// grace is stop_grace_period.
const grace = 30 * time.Second

// keep runs a service until ctx ends, again where it fails (restart: unless-stopped: the
// first to come finds three nodes that have no leader yet). It must then stop by itself,
// and must not have written into its container.
func (s *stage) keep(ctx context.Context, service string, env map[string]string) {
	for {
		cmd := s.command(service, env)
		var log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &log, &log
		ended := make(chan struct{})
		err := cmd.Start()
		assert.NoError(s.t, err)
		if err != nil {
			return
		}
		go func() {
			defer close(ended)
			_ = cmd.Wait() // its status is looked at below
		}()
		select {
		case <-ended:
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(grace):
				_ = cmd.Process.Kill()
				<-ended
			}
		}
		left, err := os.ReadDir(cmd.Dir)
		assert.NoError(s.t, err)
		assert.Empty(s.t, left, "%s writes into its container", service)
		for _, name := range []string{"nats-password", "model-key", "weaviate-key", "embed-key"} {
			assert.NotContains(s.t, log.String(), secretOf(s.t, s.secrets, name))
		}
		assert.NotContains(s.t, log.String(), "no effect", "%s is given what it does not know", service)
		code := cmd.ProcessState.ExitCode()
		if ctx.Err() != nil {
			assert.Zero(s.t, code, "%s: %s", service, log.String())
			return
		}
		if !assert.Equal(s.t, 1, code, "%s: %s", service, log.String()) {
			return
		}
	}
}

// start runs a service until the test ends, and gives its address.
func (s *stage) start(service string) string {
	s.t.Helper()
	env := s.environment(service)
	require.Equal(s.t, "0.0.0.0:8480", env["TURNLEDGER_LISTEN"])
	address := stack.FreeAddress(s.t)
	_, port, _ := strings.Cut(address, ":")
	env["TURNLEDGER_LISTEN"] = "0.0.0.0:" + port
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.keep(ctx, service, env)
	}()
	s.t.Cleanup(func() {
		stop()
		<-ended
	})
	return "http://" + address
}

// call answers with the status and an object.
func (s *stage) call(method, url, key, body string) (int, map[string]any) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(s.t, err)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	var out map[string]any
	_ = json.Unmarshal(raw, &out) // what is no object is seen by its status
	return resp.StatusCode, out
}

// TestTheServicesRunAsTheyAreWritten starts what deploy/README.md says, in its order: a
// key, then every service; a turn goes in at one and comes out at the others.
func TestTheServicesRunAsTheyAreWritten(t *testing.T) {
	s := newStage(t)
	for name, c := range s.compose.Services {
		auth := c.Environment["TURNLEDGER_AUTH"]
		if auth == nil {
			continue
		}
		require.True(t, strings.HasPrefix(*auth, "keys:"+mounted+"/"), name)
		require.Len(t, c.Volumes, 1, name)
		require.Equal(t, "keys", c.Volumes[0].Source, name)
		require.Equal(t, mounted, c.Volumes[0].Target, name)
		require.Equal(t, name != "keys", c.Volumes[0].ReadOnly, name)
	}
	first := s.command("api", s.environment("api"))
	out, err := first.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, first.ProcessState.ExitCode())
	require.Contains(t, string(out), "turnledger keys create")

	made, err := s.command("keys", s.environment("keys"), "create", "pipeline", "--scopes",
		"turns:write,context:read,events:read,admin").Output()
	require.NoError(t, err)
	key := strings.TrimSpace(string(made))
	listed, err := s.command("keys", s.environment("keys")).Output()
	require.NoError(t, err)
	require.Contains(t, string(listed), "pipeline")

	url := map[string]string{}
	for _, service := range []string{"api", "context", "recent", "audit", "eraser", "chat", "index"} {
		url[service] = s.start(service)
	}
	for service, at := range url {
		hang.Until(t, func() bool {
			status, _ := s.call("GET", at+"/readyz", "",
				"")
			return status == http.StatusOK
		}, service)
		status, _ := s.call("GET", at+"/v1/projections", "", "")
		require.Equal(t, http.StatusUnauthorized, status, service)
	}
	status, turn := s.call("POST", url["api"]+"/v1/sessions/s/turns", key, `{"request_id":"r","question_neutral":"q","identity_id":"ada"}`)
	require.Equal(t, http.StatusCreated, status, turn)
	status, final := s.call("POST", fmt.Sprintf("%s/v1/sessions/s/turns/%s/finalize", url["api"], turn["turn_id"]), key,
		`{"answer_neutral":"a"}`)
	require.Equal(t, http.StatusOK, status, final)
	status, prompt := s.call("POST", url["context"]+"/v1/sessions/s/context", key, `{"message":"m"}`)
	require.Equal(t, http.StatusOK, status, prompt)
	require.Len(t, prompt["messages"], 3)
	status, answer := s.call("POST", url["chat"]+"/v1/threads/t/messages", key, `{"content":"m"}`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "as asked", answer["content"])
	hang.Until(t, func() bool {
		status, found := s.call("GET", url["context"]+"/v1/identities/ada/turns", key, "")
		return status == http.StatusOK && len(found["turns"].([]any)) == 1
	}, "the audit has it")
	hang.Until(t, func() bool {
		_, found := s.call("POST", url["context"]+"/v1/similar", key, `{"question":"q"}`)
		hits, _ := found["hits"].([]any)
		return len(hits) > 0
	}, "the index has it")
	for _, view := range []string{"recent", "audit", "index"} {
		hang.Until(t, func() bool {
			_, found := s.call("GET", url[view]+"/v1/projections", key, "")
			list, _ := found["projections"].([]any)
			for _, p := range list {
				if p := p.(map[string]any); p["name"] == view && p["state"] == "live" &&
					p["position"] == final["position"] {
					return true
				}
			}
			return false
		}, "%s has applied it", view)
	}
}
