package deployment_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
)

// weaviateSettings returns what docker-compose.yml's shell line gives to Weaviate, with the arguments: NAME=value, and
// without what concerns a container's folders.
func weaviateSettings(t *testing.T, c types.ServiceConfig, secrets string) (args string, settings []string) {
	t.Helper()
	require.Equal(t, []string{"sh", "-c"}, []string(c.Entrypoint))
	require.Len(t, c.Command, 1)
	// What stands in the server's place prints what it is given.
	program := filepath.Join(t.TempDir(), "weaviate")
	must.Program(t, program, "#!/bin/sh\necho \"ARGS=$*\"\nexec env\n")
	line := strings.NewReplacer("/bin/weaviate", program, "/run/secrets", secrets).Replace(c.Command[0])
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range c.Environment {
		cmd.Env = append(cmd.Env, name+"="+*value)
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ARGS":
			args = value
		case "PATH", "PWD", "SHLVL", "_", "OLDPWD", "PERSISTENCE_DATA_PATH":
		default:
			settings = append(settings, name+"="+value)
		}
	}
	return args, settings
}

// startWeaviate runs the service as it is written: the tests' own server, with the settings of
// docker-compose.index.yml.
func startWeaviate(t *testing.T, c types.ServiceConfig, secrets string) *weaviatetest.Server {
	t.Helper()
	args, settings := weaviateSettings(t, c, secrets)
	require.Equal(t, "--host 0.0.0.0 --port 8080 --scheme http", args)
	return weaviatetest.StartWith(t, secretOf(t, secrets, "weaviate-key"), settings...)
}

// Weaviate asks for the key, and with it does not make collections by itself.
func TestWeaviateAsksForItsKey(t *testing.T) {
	secrets := secretsIn(t)
	w := startWeaviate(t, compose(t).Services["weaviate"], secrets)
	for key, want := range map[string]int{
		"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized,
		secretOf(t, secrets, "weaviate-key"): http.StatusOK,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL()+"/v1/schema", nil)
		require.NoError(t, err)
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode, key)
	}
}

// Only Turnledger's processes share a network with Weaviate, and this network reaches nobody else.
func TestWeaviateIsOnAnInternalNetwork(t *testing.T) {
	c := compose(t)
	require.True(t, c.Networks["index"].Internal)
	weaviate := c.Services["weaviate"]
	require.Empty(t, weaviate.Ports)
	require.Equal(t, []string{"index"}, weaviate.NetworksByPriority())
	require.True(t, weaviate.ReadOnly)
	for name, s := range c.Services {
		_, on := s.Networks["index"]
		process := len(s.Command) > 0 && s.Command[0] == "serve"
		require.Equal(t, process || name == "weaviate", on, name)
		if process {
			require.Contains(t, s.Networks, "default", name)
			require.Equal(t, "http://weaviate:8080", *s.Environment["TURNLEDGER_WEAVIATE_URL"], name)
		}
	}
	require.Equal(t, []string{"serve", "--roles", "index"}, []string(c.Services["index"].Command))
	require.Contains(t, c.Services["index"].DependsOn, "weaviate")
	require.NotContains(t, composeOf(t, "docker-compose.yml").Services, "weaviate")

	m := readManifests(t)
	policy := m.policies["weaviate"]
	require.Empty(t, policy.Spec.Egress)
	require.Len(t, policy.Spec.PolicyTypes, 2)
	require.Equal(t, map[string]string{"app": "turnledger"}, policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels)
}

// The image is of the version that the tests run, and Kubernetes gives it the same settings.
func TestWeaviateIsTheOneOfTheTests(t *testing.T) {
	c := compose(t).Services["weaviate"]
	for _, file := range []string{"../../../go.mod", "../../testkit/weaviate/server/go.mod"} {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		version := regexp.MustCompile(`(?m)^\s*(?:require )?github.com/weaviate/weaviate v(\S+)`).FindSubmatch(raw)
		require.NotNil(t, version, file)
		require.Equal(t, "cr.weaviate.io/semitechnologies/weaviate:"+string(version[1]), c.Image, file)
	}
	m := readManifests(t)
	pod := m.sets["weaviate"].Spec.Template.Spec
	require.Equal(t, c.Image, pod.Containers[0].Image)
	secrets := secretsIn(t)
	args, settings := weaviateSettings(t, c, secrets)
	require.Equal(t, args, strings.Join(pod.Containers[0].Args, " "))
	var given []string
	for _, e := range pod.Containers[0].Env {
		switch {
		case e.Name == "PERSISTENCE_DATA_PATH":
			require.Equal(t, *c.Environment[e.Name], e.Value)
			require.True(t, slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(v core.VolumeMount) bool {
				return v.MountPath == e.Value
			}))
		case e.ValueFrom != nil:
			require.Equal(t, "weaviate", e.ValueFrom.SecretKeyRef.Name)
			given = append(given, e.Name+"="+secretOf(t, secrets, "weaviate-key"))
		default:
			given = append(given, e.Name+"="+e.Value)
		}
	}
	require.ElementsMatch(t, settings, given)
}
