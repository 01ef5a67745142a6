// Package deploy_test checks the files of this folder and docker-compose.yml with the programs' own parsers.
package deploy_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// password looks like a number with a unit, which an unquoted value would be taken for.
const password = "12e4567890k"

// nodeConfig reads nats.conf as docker-compose.yml's n-th node would, with each route's address replaced.
func nodeConfig(t *testing.T, n int, routes [3]string) *server.Options {
	t.Helper()
	t.Setenv("NATS_PASSWORD", password)
	t.Setenv("NATS_ROUTE_PASSWORD", password)
	for name, value := range compose(t).Services[fmt.Sprintf("nats-%d", n)].Environment {
		value = strings.NewReplacer("${NATS_PASSWORD:?set it in .env}", password, "${NATS_ROUTE_PASSWORD:?set it in .env}", password).Replace(value)
		for i, address := range routes {
			value = strings.ReplaceAll(value, fmt.Sprintf("@nats-%d:6222", i+1), "@"+address)
		}
		t.Setenv(name, value)
	}
	opts, err := server.ProcessConfigFile("nats.conf")
	require.NoError(t, err)
	return opts
}

func TestNATSConfigIsWhatTheLogNeeds(t *testing.T) {
	opts := nodeConfig(t, 1, [3]string{"nats-1:6222", "nats-2:6222", "nats-3:6222"})
	require.Equal(t, "nats-1", opts.ServerName)
	require.True(t, opts.JetStream)
	require.True(t, opts.SyncAlways, "acknowledged means on disk")
	require.EqualValues(t, 8<<20, opts.MaxPayload)
	require.Empty(t, opts.JetStreamCipher)
	require.Empty(t, opts.JetStreamKey, "with encryption an erasure leaves the text")
	require.Len(t, opts.Routes, 3)
	require.Equal(t, password, opts.Password)
	require.Equal(t, password, opts.Cluster.Password)
}

func TestNATSConfigNeedsItsSecrets(t *testing.T) {
	_, err := server.ProcessConfigFile("nats.conf")
	require.Error(t, err)
}

// cluster runs the three nodes in this process, on free ports.
func cluster(t *testing.T) []*server.Server {
	routes := [3]string{freeAddress(t), freeAddress(t), freeAddress(t)}
	var nodes []*server.Server
	for n := range 3 {
		opts := nodeConfig(t, n+1, routes)
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
	require.Eventually(t, func() bool {
		for _, node := range nodes {
			if node.JetStreamIsLeader() {
				return len(node.JetStreamClusterPeers()) == 3
			}
		}
		return false
	}, time.Minute, 20*time.Millisecond, "a leader that knows all three")
	return nodes
}

func TestThreeNodesFormACluster(t *testing.T) {
	nodes := cluster(t)
	_, err := nats.Connect(nodes[0].ClientURL())
	require.ErrorIs(t, err, nats.ErrAuthorization)

	nc, err := nats.Connect(nodes[0].ClientURL(), nats.UserInfo("turnledger", password))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TURNS-0", Subjects: []string{"turns.>"}, Replicas: 3})
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	_, err = js.Publish(t.Context(), "turns.0.x", make([]byte, 6<<20))
	require.NoError(t, err, "a large event fits")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

type composeFile struct {
	Services map[string]struct {
		Image       string
		Build       struct{ Context, Dockerfile string }
		Entrypoint  []string
		Command     []string
		Environment map[string]string
		Ports       []string
		Volumes     []string
		Healthcheck struct{ Test []string }
		DependsOn   map[string]any `yaml:"depends_on"`
	}
	Volumes map[string]any
}

func compose(t *testing.T) (c composeFile) {
	t.Helper()
	text, err := os.ReadFile("../docker-compose.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &c))
	return c
}

// secret is a value that docker compose takes from the environment and refuses to do without.
var secret = regexp.MustCompile(`\$\{[A-Z_]+:\?[^}]+\}`)

func TestComposeIsCompleteAndClosed(t *testing.T) {
	c := compose(t)
	for _, name := range []string{"api", "context", "recent", "audit", "eraser", "keys", "nats-1", "nats-2", "nats-3", "redis", "postgres", "prometheus", "grafana"} {
		s, there := c.Services[name]
		require.True(t, there, name)
		require.NotEmpty(t, s.Image, name)
		require.Equal(t, name != "keys", len(s.Healthcheck.Test) > 0, name)
		for _, port := range s.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s publishes %s beyond loopback", name, port)
		}
		for key, value := range s.Environment {
			if strings.Contains(key, "PASSWORD") {
				require.Regexp(t, secret, value, "%s: %s must come from outside", name, key)
			}
			if _, rest, isURL := strings.Cut(value, "://"); isURL {
				require.Regexp(t, `^[a-z]*:`+secret.String()+`@`, rest, "%s: %s must not hold a password", name, key)
			}
		}
		for other := range s.DependsOn {
			require.Contains(t, c.Services, other, name)
		}
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if strings.HasPrefix(from, "./") {
				_, err := os.Stat(filepath.Join("..", from))
				require.NoError(t, err, name)
			} else {
				require.Contains(t, c.Volumes, from, name)
			}
		}
		if s.Build.Dockerfile != "" {
			require.FileExists(t, filepath.Join("..", s.Build.Context, s.Build.Dockerfile), name)
		}
	}
	require.Contains(t, strings.Join(c.Services["redis"].Command, " "), "--maxmemory-policy noeviction")
	require.Equal(t, "3", c.Services["api"].Environment["TURNLEDGER_REPLICAS"])
}
