package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// runner runs tests on mutations of a checkout.
type runner struct {
	dir     string
	limit   time.Duration
	race    bool
	command []string // instead of the packages' tests
	out     io.Writer
}

// overlaid writes what the go command needs to see a mutation of a checkout: the file of -overlay.
func overlaid(dir string, m *mutation) (overlay string, at found, remove func(), err error) {
	at, err = m.find(dir)
	if err != nil {
		return "", at, nil, err
	}
	temp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", at, nil, err
	}
	remove = func() { _ = os.RemoveAll(temp) }
	defer func() {
		if err != nil {
			remove()
		}
	}()
	original, err := filepath.Abs(filepath.Join(dir, at.file))
	if err != nil {
		return "", at, nil, err
	}
	text := filepath.Join(temp, "mutated.go")
	if err = os.WriteFile(text, []byte(at.text), 0o600); err != nil {
		return "", at, nil, err
	}
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{original: text}})
	if err != nil {
		return "", at, nil, err
	}
	overlay = filepath.Join(temp, "overlay.json")
	return overlay, at, remove, os.WriteFile(overlay, raw, 0o600)
}

// compiles builds the package of a mutation.
func compiles(ctx context.Context, dir string, m *mutation) error {
	overlay, at, remove, err := overlaid(dir, m)
	if err != nil {
		return err
	}
	defer remove()
	return built(ctx, dir, at, overlay)
}

// built builds the package of a mutation.
func built(ctx context.Context, dir string, at found, overlay string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", os.DevNull, "-overlay", overlay, "./"+path.Dir(at.file))
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not compile: %w: %s", at.file, err, bytes.TrimSpace(out))
	}
	return nil
}

// find prints for each mutation where its statement is in a checkout, and at the end which have none any more.
func find(dir string, all []mutation, chosen map[int]bool, out io.Writer) error {
	var lost []int
	for i := range all {
		m := &all[i]
		if len(chosen) > 0 && !chosen[m.Number] {
			continue
		}
		at, err := m.find(dir)
		where := at.file
		switch {
		case err != nil:
			lost, where = append(lost, m.Number), "not there: "+err.Error()
		case where == m.File:
			where = "there"
		}
		if _, err := fmt.Fprintf(out, "%2d %s, %s %s: %s\n", m.Number, m.Kind, m.File, m.Func, where); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d not there: %v\n", len(lost), lost)
	return err
}

// run prints for each mutation which test notices it, and at the end how many are noticed.
func (r *runner) run(ctx context.Context, all []mutation, chosen map[int]bool) error {
	var g graph
	var err error
	if len(r.command) == 0 {
		if g, err = imports(ctx, r.dir); err != nil {
			return err
		}
	}
	var survived, lost []int
	n := 0
	for i := range all {
		m := &all[i]
		if len(chosen) > 0 && !chosen[m.Number] {
			continue
		}
		began := time.Now()
		by, err := r.try(ctx, g, m)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			by = "not run: " + err.Error()
			lost = append(lost, m.Number)
		case !strings.HasPrefix(by, "killed"):
			survived = append(survived, m.Number)
		}
		n++
		if _, err := fmt.Fprintf(r.out, "%2d %s, %s %s: %s (%s)\n", m.Number, m.Kind, m.File, m.Func, by,
			time.Since(began).Round(time.Second)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(r.out, "%d of %d killed; survived: %v; not run: %v\n",
		n-len(survived)-len(lost), n, survived, lost)
	return err
}

// try returns what becomes of a mutation.
func (r *runner) try(ctx context.Context, g graph, m *mutation) (string, error) {
	overlay, at, remove, err := overlaid(r.dir, m)
	if err != nil {
		return "", err
	}
	defer remove()
	// A command would fail on it, and be taken to have noticed it.
	if err := built(ctx, r.dir, at, overlay); err != nil {
		return "", err
	}
	if len(r.command) > 0 {
		return r.tryCommand(ctx, overlay)
	}
	packages := g.closest(path.Dir(at.file))
	var doubtful []string
	for _, pkg := range packages {
		test, err := r.test(ctx, pkg, overlay)
		if err != nil {
			return "", err
		}
		if test == "" {
			continue
		}
		// A test that fails on the tree as it is says nothing.
		without, err := r.test(ctx, pkg, "", "-run", exactly(test))
		if err != nil {
			return "", err
		}
		if without == "" {
			return "killed by " + pkg.ImportPath + " " + test, nil
		}
		doubtful = append(doubtful, pkg.ImportPath+" "+test)
	}
	says := fmt.Sprintf("survived %d packages", len(packages))
	if doubtful != nil {
		says += "; these fail without it, too: " + strings.Join(doubtful, ", ")
	}
	return says, nil
}

// exactly returns the pattern of -run for a test, or for a package as a whole.
func exactly(test string) string {
	if test == wholePackage {
		return "."
	}
	return "^" + regexp.QuoteMeta(test) + "$"
}

// wholePackage stands for a test where a package fails and none of its tests is to blame.
const wholePackage = "(the package)"

// test runs the tests of a package, and returns the one that fails; "" if none does.
func (r *runner) test(ctx context.Context, pkg listed, overlay string, flags ...string) (failed string, err error) {
	args := []string{"test", "-json", "-count=1", "-failfast", "-vet=off", "-timeout", r.limit.String()}
	args = append(args, flags...)
	if r.race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg.ImportPath)...)
	cmd.Dir, cmd.WaitDelay = pkg.Module.Dir, time.Second
	cmd.Env = environment(cmd, overlay)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err == nil {
		return "", nil
	}
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, FailedBuild string }
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		if e.FailedBuild != "" {
			return "", fmt.Errorf("%s does not compile: %s", pkg.ImportPath, bytes.TrimSpace(out))
		}
		if e.Action == "fail" && e.Test != "" && !strings.Contains(e.Test, "/") {
			return e.Test, nil
		}
	}
	if len(out) == 0 {
		return "", fmt.Errorf("%s: %w: %s", pkg.ImportPath, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return wholePackage, nil
}

// environment is that of a command in which every go command sees a mutation, also one by which a test builds the
// program. A program that was built before is left out.
func environment(cmd *exec.Cmd, overlay string) (out []string) {
	flags := ""
	for _, v := range cmd.Environ() {
		switch name, value, _ := strings.Cut(v, "="); name {
		case "GOFLAGS":
			flags = value
		case "TURNLEDGER_TEST_BINARY":
		default:
			out = append(out, v)
		}
	}
	if overlay != "" {
		flags += " -overlay=" + overlay
	}
	return append(out, "GOFLAGS="+strings.TrimSpace(flags))
}

// tryCommand has a command decide on a mutation, which all go commands below it see.
func (r *runner) tryCommand(ctx context.Context, overlay string) (string, error) {
	cmd := exec.CommandContext(ctx, r.command[0], r.command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, os.Stderr, os.Stderr
	cmd.Env = environment(cmd, overlay)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "survived " + strings.Join(r.command, " "), nil
	case errors.As(err, &exit):
		return "killed by " + strings.Join(r.command, " "), nil
	default:
		return "", err
	}
}
