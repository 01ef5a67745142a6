// Package deployment_test checks the files of deploy and docker-compose.yml with the programs' own parsers.
package deployment_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// secretsIn makes the secrets as deploy/README.md says, but for one that looks like a number
// with a unit, which an unquoted value would be taken for.
func secretsIn(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nats-password"), []byte("12e4567890k\n"), 0o600))
	for range 2 { // the second finds all there
		out, err := exec.CommandContext(t.Context(), "sh", "../../secrets.sh", dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

func secretOf(t *testing.T, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	line, rest, _ := strings.Cut(string(raw), "\n")
	require.NotEmpty(t, line, name)
	require.Empty(t, rest, name)
	return line
}

// nodeConfig reads nats.conf as docker-compose.yml's n-th node would, with each route's address replaced.
func nodeConfig(t *testing.T, secrets string, n int, routes [3]string) *server.Options {
	t.Helper()
	c := compose(t).Services[fmt.Sprintf("nats-%d", n)]
	require.Equal(t, []string{"sh", "/etc/nats/nats.sh"}, []string(c.Entrypoint))
	// What stands in the server's place tells what it is given.
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "nats-server"),
		[]byte("#!/bin/sh\necho \"ARGS=$*\"\nexec env\n"), 0o700))
	require.NoError(t, os.Symlink(stack.Binary(t), filepath.Join(bin, "turnledger")))
	data := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "../../nats.sh")
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "SECRETS=" + secrets, "DATA=" + data}
	for name, value := range c.Environment {
		cmd.Env = append(cmd.Env, name+"="+*value)
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		for i, address := range routes {
			value = strings.ReplaceAll(value, fmt.Sprintf("@nats-%d:6222", i+1), "@"+address)
		}
		if strings.HasPrefix(name, "NATS_") {
			t.Setenv(name, value)
		}
		if name == "ARGS" {
			require.Equal(t, "--config /etc/nats/nats.conf", value)
		}
	}
	require.Contains(t, string(out), "scrubbed "+data, "before it starts")
	opts, err := server.ProcessConfigFile("../../nats.conf")
	require.NoError(t, err)
	return opts
}

func TestNATSConfigIsWhatTheLogNeeds(t *testing.T) {
	secrets := secretsIn(t)
	opts := nodeConfig(t, secrets, 1, [3]string{"nats-1:6222", "nats-2:6222", "nats-3:6222"})
	require.Equal(t, "nats-1", opts.ServerName)
	require.True(t, opts.JetStream)
	require.True(t, opts.SyncAlways, "acknowledged means on disk")
	require.EqualValues(t, 8<<20, opts.MaxPayload)
	require.Empty(t, opts.JetStreamCipher)
	require.Empty(t, opts.JetStreamKey, "with encryption an erasure leaves the text")
	require.Len(t, opts.Routes, 3)
	require.Equal(t, "12e4567890k", opts.Password)
	require.Equal(t, secretOf(t, secrets, "nats-route-password"), opts.Cluster.Password)
}

func TestNATSConfigNeedsItsSecrets(t *testing.T) {
	_, err := server.ProcessConfigFile("../../nats.conf")
	require.Error(t, err)
}

// cluster runs the three nodes in this process, on free ports.
func cluster(t *testing.T, secrets string) []*server.Server {
	routes := [3]string{stack.FreeAddress(t), stack.FreeAddress(t), stack.FreeAddress(t)}
	var nodes []*server.Server
	for n := range 3 {
		opts := nodeConfig(t, secrets, n+1, routes)
		opts.Host, opts.Port, opts.HTTPPort, opts.NoLog, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, true, true
		opts.StoreDir = t.TempDir()
		_, port, err := net.SplitHostPort(routes[n])
		require.NoError(t, err)
		opts.Cluster.Host = "127.0.0.1"
		_, err = fmt.Sscan(port, &opts.Cluster.Port)
		require.NoError(t, err)
		node, err := server.NewServer(opts)
		require.NoError(t, err)
		node.Start()
		t.Cleanup(func() { node.Shutdown(); node.WaitForShutdown() })
		nodes = append(nodes, node)
	}
	hang.Until(t, func() bool {
		for _, node := range nodes {
			if node.JetStreamIsLeader() {
				return len(node.JetStreamClusterPeers()) == 3
			}
		}
		return false
	}, "a leader that knows all three")
	return nodes
}

func TestThreeNodesFormACluster(t *testing.T) {
	secrets := secretsIn(t)
	nodes := cluster(t, secrets)
	_, err := nats.Connect(nodes[0].ClientURL())
	require.ErrorIs(t, err, nats.ErrAuthorization)

	nc, err := nats.Connect(nodes[0].ClientURL(), nats.UserInfo("turnledger", secretOf(t, secrets, "nats-password")))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	hang.Until(t, func() bool {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TURNS-0", Subjects: []string{"turns.>"},
			Replicas: 3})
		return err == nil
	})
	_, err = js.Publish(t.Context(), "turns.0.x", make([]byte, 6<<20))
	require.NoError(t, err, "a large event fits")
}

// compose reads docker-compose.yml with docker-compose.index.yml.
func compose(t *testing.T) *types.Project {
	t.Helper()
	return composeOf(t, "docker-compose.yml", "docker-compose.index.yml")
}

// composeOf reads files as docker compose does, with all profiles. From the environment comes only what
// docker-compose.index.yml asks for.
func composeOf(t *testing.T, names ...string) *types.Project {
	t.Helper()
	folder, err := filepath.Abs("../../..")
	require.NoError(t, err)
	var files []types.ConfigFile
	for _, name := range names {
		files = append(files, types.ConfigFile{Filename: filepath.Join(folder, name)})
	}
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: folder, ConfigFiles: files,
		Environment: types.Mapping{"EMBED_URL": "https://embeddings.example/v1", "EMBED_NAME": "model"},
	}, loader.WithProfiles([]string{"*"}))
	require.NoError(t, err)
	return p
}

func TestComposeIsCompleteAndClosed(t *testing.T) {
	base := []string{"api", "context", "recent", "audit", "eraser", "chat", "keys", "nats-1", "nats-2", "nats-3",
		"redis", "postgres", "prometheus", "grafana"}
	requireClosed(t, composeOf(t, "docker-compose.yml"), base...)
	requireClosed(t, compose(t), append(base, "index", "weaviate")...)
}

// requireClosed holds that a project has services, that each has limits and a check of its health, and that no secret
// stands in an environment.
func requireClosed(t *testing.T, c *types.Project, names ...string) {
	t.Helper()
	made := secretsIn(t)
	for _, name := range names {
		require.Contains(t, c.Services, name)
	}
	for name, s := range c.Services {
		require.NotEmpty(t, s.Image, name)
		require.Equal(t, name != "keys", s.HealthCheck != nil && len(s.HealthCheck.Test) > 0, name)
		require.Positive(t, s.MemLimit, name)
		require.Positive(t, s.CPUS, name)
		require.Positive(t, s.PidsLimit, name)
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, "%s publishes %s beyond loopback", name, port.Published)
		}
		for key, value := range s.Environment {
			require.NotContains(t, *value, "@", "%s: %s holds a secret", name, key)
			if secret, ok := strings.CutPrefix(*value, "/run/secrets/"); ok {
				require.True(t, strings.HasSuffix(key, "_FILE"), "%s: %s", name, key)
				require.True(t, slices.ContainsFunc(s.Secrets,
					func(x types.ServiceSecretConfig) bool { return x.Source == secret }), "%s: %s", name, key)
			} else {
				require.NotRegexp(t, "PASSWORD|_KEY|NATS_URL|REDIS_URL|POSTGRES_URL", key, name)
			}
		}
		for _, secret := range s.Secrets {
			require.Contains(t, c.Secrets, secret.Source, name)
			if secret.Source != "model-key" && secret.Source != "embed-key" { // the operator's
				secretOf(t, made, filepath.Base(c.Secrets[secret.Source].File))
			}
		}
		for _, volume := range s.Volumes {
			if volume.Type == types.VolumeTypeBind {
				_, err := os.Stat(volume.Source)
				require.NoError(t, err, name)
			} else {
				require.Contains(t, c.Volumes, volume.Source, name)
			}
		}
		if s.Build != nil {
			require.FileExists(t, filepath.Join(s.Build.Context, s.Build.Dockerfile), name)
			require.True(t, s.ReadOnly || name == "keys", name)
		}
	}
	require.Contains(t, strings.Join(c.Services["redis"].Command, " "), "--maxmemory-policy noeviction")
	require.Equal(t, "3", *c.Services["api"].Environment["TURNLEDGER_REPLICAS"])
	require.Equal(t, "8", *c.Services["api"].Environment["TURNLEDGER_PARTITIONS"])
}
