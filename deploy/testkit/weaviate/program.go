package weaviate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"

	"github.com/turnledger/turnledger/deploy/testkit/gobuild"
)

// source is the folder of the module that pins the server's version.
func source() (string, error) {
	product, err := gobuild.Product()
	return filepath.Join(product, "deploy", "testkit", "weaviate", "server"), err
}

// command is the package of the server.
const command = "github.com/weaviate/weaviate/cmd/weaviate-server"

// Program returns the path of a Weaviate, which it builds from its Go module when this machine has none of the pinned
// version and this Go version: some minutes, once. It stays in the user's cache folder. Several processes may call it
// at once; one builds.
func Program(ctx context.Context, progress io.Writer) (path string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	source, err := source()
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	_, _ = io.WriteString(digest, runtime.Version())
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		_, _ = digest.Write(text)
	}
	dir := filepath.Join(cache, "turnledger")
	path = filepath.Join(dir, "weaviate-"+hex.EncodeToString(digest.Sum(nil)[:8]))
	if isThere(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock := flock.New(path + ".lock")
	if _, err := lock.TryLockContext(ctx, time.Second); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if isThere(path) {
		return path, nil
	}
	return path, build(ctx, source, path, progress)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// build leaves nothing at the path unless the whole build has succeeded.
func build(ctx context.Context, source, path string, progress io.Writer) error {
	_, _ = fmt.Fprintln(progress, "building Weaviate for the tests; this takes some minutes, once a machine")
	began := time.Now()
	half := path + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", half, command)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build Weaviate from its Go module, as the tests need it: %w\n%s", err, said)
	}
	_, _ = fmt.Fprintf(progress, "built in %s: %s\n", time.Since(began).Round(time.Second), path)
	return os.Rename(half, path)
}
