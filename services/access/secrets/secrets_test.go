package secrets

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigShowsNoSecret(t *testing.T) {
	t.Parallel()
	for in, out := range map[string]string{
		"":                            "",
		"127.0.0.1:4222":              "127.0.0.1:4222",
		"nats://u:pw@h:1":             "nats://u:xxxxx@h:1",
		"host=h password=pw":          "(set)",
		"nats://token@h:1":            "nats://xxxxx@h:1",
		"nats://u:pw@[bad":            "(set)",
		"u:pw@h:x":                    "(set)",
		"redis:/x:pw@h":               "(set)",
		"postgres://u@h/db":           "postgres://u@h/db",
		"postgres://h/db?password=pw": "postgres://h/db?password=xxxxx",
		"https://h/v1?key=pw":         "https://h/v1?key=xxxxx",
		"postgres://h/db?sslmode=require&sslpassword=pw": "postgres://h/db?sslmode=require&sslpassword=xxxxx",
		"nats://u:pw@a:1,nats://token@b:2":               "nats://u:xxxxx@a:1,nats://xxxxx@b:2",
		"nats://u:p,w@a:1,nats://u:pw@b:2":               "(set)",
		"nats://u:pw@a:1,b:2":                            "nats://u:xxxxx@a:1,b:2",
	} {
		require.Equal(t, out, Hide(in))
	}
}
