package deployment_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// scrape is what prometheus.yml says.
type scrape struct {
	Files   []string `json:"rule_files"`
	Configs []struct {
		Job    string `json:"job_name"`
		Static []struct {
			Targets []string `json:"targets"`
		} `json:"static_configs"`
		Names []struct {
			Names []string `json:"names"`
			Port  int      `json:"port"`
		} `json:"dns_sd_configs"`
		Relabel []struct {
			Source []string `json:"source_labels"`
			Regex  string   `json:"regex"`
			Target string   `json:"target_label"`
		} `json:"relabel_configs"`
	} `json:"scrape_configs"`
}

// Prometheus asks every process of docker-compose.yml, and the nodes of the log, and knows the role of each.
func TestPrometheusAsksEveryProcess(t *testing.T) {
	raw, err := os.ReadFile("../../prometheus/prometheus.yml")
	require.NoError(t, err)
	var s scrape
	require.NoError(t, yaml.Unmarshal(raw, &s))
	for _, file := range s.Files {
		require.FileExists(t, filepath.Join("../../prometheus", file))
	}
	asked := map[string][]string{}
	for _, c := range s.Configs {
		roles := map[string]*regexp.Regexp{}
		for _, r := range c.Relabel {
			require.Equal(t, "role", r.Target)
			require.Len(t, r.Source, 1)
			roles[r.Source[0]] = regexp.MustCompile("^(?:" + r.Regex + ")$")
		}
		for _, one := range c.Static {
			for _, target := range one.Targets {
				asked[c.Job] = append(asked[c.Job], target)
				if c.Job == "turnledger" {
					require.Equal(t, target, roles["__address__"].FindStringSubmatch(target)[1]+":8480")
				}
			}
		}
		for _, one := range c.Names {
			require.Equal(t, 8480, one.Port)
			for _, name := range one.Names {
				asked[c.Job] = append(asked[c.Job], name+":8480")
				require.Equal(t, name, roles["__meta_dns_name"].FindStringSubmatch(name)[1])
				require.Nil(t, roles["__address__"].FindStringSubmatch("10.0.0.1:8480"), "an address is no role")
			}
		}
	}
	services := compose(t).Services
	var want []string
	for name, c := range services {
		if len(c.Command) > 0 && c.Command[0] == "serve" {
			want = append(want, name+":8480")
		}
	}
	require.ElementsMatch(t, want, asked["turnledger"])
	require.Equal(t, []string{"nats-exporter:7777"}, asked["nats"])
	for _, node := range []string{"nats-1", "nats-2", "nats-3"} {
		require.Contains(t, services["nats-exporter"].Command, node+",http://"+node+":8222")
	}

	m := readManifests(t)
	nats := m.sets["nats"].Spec.Template
	exporter := nats.Spec.Containers[slices.IndexFunc(nats.Spec.Containers,
		func(c core.Container) bool { return c.Name == "exporter" })]
	require.Equal(t, services["nats-exporter"].Image, exporter.Image)
	require.Equal(t, nats.Annotations["prometheus.io/port"], "7777")
	require.EqualValues(t, 7777, exporter.Ports[0].ContainerPort)
	var open []int32
	for _, rule := range m.policies["nats"].Spec.Ingress {
		for _, port := range rule.Ports {
			open = append(open, port.Port.IntVal)
		}
	}
	require.ElementsMatch(t, []int32{4222, 6222, 7777}, open)
}
