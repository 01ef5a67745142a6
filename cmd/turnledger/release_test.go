package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// The released binary says its version, commit and Go version.
func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, errs := runHere(t, "version")
	require.Equal(t, exitDone, code, errs)
	require.Regexp(t, `^turnledger dev \(commit [0-9a-z ]+, go1\.\d+\S*, nats-server \S+\)\n$`, out)
}

// The images take a binary that `make dist` builds, and its version is the newest of the changes.
func TestTheImagesHoldWhatIsReleased(t *testing.T) {
	t.Parallel()
	text := func(name string) string { return string(must.Get(os.ReadFile("../../" + name))(t)) }
	version := regexp.MustCompile(`(?m)^## (\S+)`).FindStringSubmatch(text("CHANGELOG.md"))
	require.Regexp(t, `^\d+\.\d+\.\d+$`, version[1])
	dist := regexp.MustCompile(`for target in (.+);`).FindStringSubmatch(text("Makefile"))
	require.Equal(t, "linux/amd64 linux/arm64 darwin/arm64", dist[1])
	copied := regexp.MustCompile(`COPY \S+ bin/dist/turnledger-(\w+)-\$\{TARGETARCH\}`).FindStringSubmatch(
		text("deploy/Dockerfile"))
	require.Equal(t, "linux", copied[1])
	require.NotContains(t, text("deploy/Dockerfile"), "go build")
	require.Contains(t, strings.Split(text("deploy/Dockerfile.dockerignore"), "\n"), "!bin/dist")
}
