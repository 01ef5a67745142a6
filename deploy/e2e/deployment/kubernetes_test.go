package deployment_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
)

// manifests are the objects of deploy/kubernetes, read as strictly as a server that
// validates would.
type manifests struct {
	deployments map[string]*apps.Deployment
	sets        map[string]*apps.StatefulSet
	config      map[string]map[string]string // by the beginning of the name
	budgets     []*policy.PodDisruptionBudget
	services    []*core.Service
	policies    map[string]*networking.NetworkPolicy
}

// readManifests builds an overlay that has all there is, as kubectl apply -k would.
func readManifests(t *testing.T) *manifests {
	t.Helper()
	m := &manifests{deployments: map[string]*apps.Deployment{}, sets: map[string]*apps.StatefulSet{},
		policies: map[string]*networking.NetworkPolicy{}, config: map[string]map[string]string{}}
	here, err := filepath.Abs("../../kubernetes")
	require.NoError(t, err)
	overlay, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	base, err := filepath.Rel(overlay, here)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), fmt.Appendf(nil,
		"resources: [%s]\ncomponents: [%s/chat, %s/index]\n", base, base, base), 0o600))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	require.NoError(t, err)
	for _, r := range built.Resources() {
		doc, err := r.AsYAML()
		require.NoError(t, err)
		require.Contains(t, []string{"turnledger", ""}, r.GetNamespace(), r.GetName())
		m.add(t, r.GetKind()+" "+r.GetName(), doc)
	}
	return m
}

func (m *manifests) add(t *testing.T, file string, doc []byte) {
	t.Helper()
	var kind struct{ Kind string }
	require.NoError(t, yaml.Unmarshal(doc, &kind))
	strictly := func(into any) { require.NoError(t, yaml.UnmarshalStrict(doc, into), "%s: %s", file, doc) }
	switch kind.Kind {
	case "Deployment":
		d := &apps.Deployment{}
		strictly(d)
		m.deployments[d.Name] = d
	case "StatefulSet":
		s := &apps.StatefulSet{}
		strictly(s)
		m.sets[s.Name] = s
	case "ConfigMap":
		c := &core.ConfigMap{}
		strictly(c)
		name, _, _ := strings.Cut(c.Name, "-config") // kustomize adds a hash
		m.config[name] = c.Data
	case "PodDisruptionBudget":
		b := &policy.PodDisruptionBudget{}
		strictly(b)
		m.budgets = append(m.budgets, b)
	case "NetworkPolicy":
		p := &networking.NetworkPolicy{}
		strictly(p)
		m.policies[p.Name] = p
	case "Service":
		s := &core.Service{}
		strictly(s)
		m.services = append(m.services, s)
	case "Namespace":
		strictly(&core.Namespace{})
	default:
		require.Fail(t, "an object of unknown kind", "%s: %q", file, kind.Kind)
	}
}

func TestKubernetesIsCompleteAndClosed(t *testing.T) {
	m := readManifests(t)
	for _, role := range []string{"api", "context", "recent", "audit", "eraser", "chat", "index"} {
		require.Contains(t, m.deployments, role)
		require.Equal(t, []string{"serve", "--roles", role}, m.deployments[role].Spec.Template.Spec.Containers[0].Args)
	}
	require.EqualValues(t, 3, *m.sets["nats"].Spec.Replicas)
	pods := map[string]core.PodSpec{}
	labels := map[string]map[string]string{}
	for name, d := range m.deployments {
		pods[name], labels[name] = d.Spec.Template.Spec, d.Spec.Template.Labels
		require.Equal(t, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels, name)
	}
	for name, s := range m.sets {
		pods[name], labels[name] = s.Spec.Template.Spec, s.Spec.Template.Labels
		require.NotEmpty(t, s.Spec.VolumeClaimTemplates, name)
		require.NotNil(t, s.Spec.Template.Spec.Containers[0].StartupProbe,
			"%s reads or makes its files first, for as long as it takes", name)
	}
	for name, pod := range pods {
		require.True(t, *pod.SecurityContext.RunAsNonRoot, name)
		require.False(t, *pod.AutomountServiceAccountToken, name)
		require.Contains(t, m.policies, labels[name]["app"], "who reaches %s", name)
		for _, c := range pod.Containers {
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
			require.NotNil(t, c.ReadinessProbe, name)
			require.NotNil(t, c.LivenessProbe, name)
			require.False(t, c.Resources.Limits.Memory().IsZero(), name)
			require.False(t, c.Resources.Limits.Cpu().IsZero(), name)
			for _, e := range c.Env {
				secret := strings.Contains(e.Name, "PASSWORD") || strings.HasSuffix(e.Name, "_KEYS")
				if secret && !strings.HasPrefix(e.Value, `"$(`) {
					require.NotNil(t, e.ValueFrom, "%s: %s must come from a secret", name, e.Name)
				}
			}
		}
	}
	// What chooses pods by labels finds some, and their ports by their names.
	finds := func(selector map[string]string) (found []string) {
		for name := range pods {
			if subset(labels[name], selector) {
				found = append(found, name)
			}
		}
		return found
	}
	for _, b := range m.budgets {
		require.Equal(t, []string{b.Name}, finds(b.Spec.Selector.MatchLabels))
		require.EqualValues(t, 1, b.Spec.MaxUnavailable.IntValue())
	}
	require.GreaterOrEqual(t, len(m.budgets), 7)
	for _, s := range m.services {
		found := finds(s.Spec.Selector)
		require.Len(t, found, 1, s.Name)
		for _, port := range s.Spec.Ports {
			require.True(t, slices.ContainsFunc(pods[found[0]].Containers[0].Ports,
				func(p core.ContainerPort) bool { return p.ContainerPort == port.Port }), "%s %d", s.Name, port.Port)
		}
	}
	require.Len(t, m.services, 7)
	for name, p := range m.policies {
		require.NotEmpty(t, finds(p.Spec.PodSelector.MatchLabels), name)
	}
	require.Empty(t, m.policies["nobody"].Spec.Ingress)
	for _, store := range []string{"redis", "postgres", "weaviate"} {
		require.Contains(t, m.policies[store].Spec.PolicyTypes, networking.PolicyTypeEgress, store)
		require.Empty(t, m.policies[store].Spec.Egress, "%s calls nobody", store)
	}
	require.Empty(t, m.policies["nobody"].Spec.PodSelector.MatchLabels, "all pods")
	for name, value := range m.config["turnledger"] {
		require.NotContains(t, value, "@", name)
	}
	require.Contains(t, m.config, "nats")
}

func subset(of, these map[string]string) bool {
	for k, v := range these {
		if of[k] != v {
			return false
		}
	}
	return true
}

// The same nats.conf as docker-compose.yml's.
func TestKubernetesHasTheSameNATS(t *testing.T) {
	lines := func(path string) (out []string) {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(raw)) {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, line)
			}
		}
		return out
	}
	require.Equal(t, lines("../../nats.conf"), lines("../../kubernetes/nats.conf"))
	var given []string
	node := readManifests(t).sets["nats"].Spec.Template.Spec.Containers[0]
	require.Equal(t, "turnledger scrub /data --report -- nats-server --config /etc/nats/nats.conf",
		strings.Join(append(node.Command, node.Args...), " "), "as nats.sh has it")
	for _, e := range node.Env {
		given = append(given, e.Name)
	}
	for _, name := range []string{"TURNLEDGER_NATS_URL", "NATS_NAME", "NATS_PASSWORD", "NATS_ROUTE_PASSWORD",
		"NATS_ROUTE_1", "NATS_ROUTE_2", "NATS_ROUTE_3"} {
		require.True(t, slices.Contains(given, name), name)
	}
}

// Every role runs with the command line and the environment that its Deployment gives it.
func TestKubernetesRolesRunAsTheyAreWritten(t *testing.T) {
	m := readManifests(t)
	s := newStage(t)
	_, err := s.command("keys", s.environment("keys"), "create", "operator", "--scopes", "admin").Output()
	require.NoError(t, err)
	secret := s.environment("chat")
	for role, d := range m.deployments {
		if role == "redis" {
			continue
		}
		c := s.compose.Services["api"]
		c.Command, c.Environment = d.Spec.Template.Spec.Containers[0].Args, types.MappingWithEquals{}
		for name, value := range m.config["turnledger"] {
			c.Environment[name] = &value
		}
		for _, name := range []string{"TURNLEDGER_NATS_URL", "TURNLEDGER_REDIS_URL", "TURNLEDGER_POSTGRES_URL",
			"TURNLEDGER_WEAVIATE_KEY", "TURNLEDGER_EMBED_KEY"} {
			value := secretOf(t, s.secrets, filepath.Base(secret[name+"_FILE"]))
			c.Environment[name] = &value
		}
		if role == "chat" {
			for name, value := range m.config["turnledger-chat"] {
				c.Environment[name] = &value
			}
		}
		s.compose.Services[role] = c
		require.Equal(t, mounted, d.Spec.Template.Spec.Containers[0].VolumeMounts[0].MountPath, role)
	}
	for role := range m.deployments {
		if role == "redis" {
			continue
		}
		at := s.start(role)
		hang.Until(t, func() bool {
			status, _ := s.call("GET", at+"/readyz", "",
				"")
			return status == http.StatusOK
		}, fmt.Sprint(role))
	}
}
