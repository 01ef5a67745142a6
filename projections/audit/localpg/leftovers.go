package localpg

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clearLeftovers removes what an earlier process of ours left when it died: a server that still runs (or is on its
// way out), a half-made cluster, a pid file whose number is somebody else's by now. The lock is held, so none of it
// belongs to a live Server.
func (s *Server) clearLeftovers(ctx context.Context) error {
	if err := s.stopLeftovers(ctx); err != nil {
		return err
	}
	halves, err := filepath.Glob(filepath.Join(escapeGlob(s.dir), stagingPrefix+"*"))
	if err != nil {
		return err
	}
	for _, half := range halves {
		if err := removeHalf(ctx, half); err != nil {
			return err
		}
	}
	if err := s.refuseRival(); err != nil {
		return err
	}
	return s.claimPidFile()
}

// removeHalf removes a half-made cluster. When initdb is killed, the server that it talks to goes on for a moment,
// till it finds its input closed, and may still put files there; so removing is tried for a while.
func removeHalf(ctx context.Context, half string) error {
	var err error
	_, ended := within(ctx, killAfter, func() (bool, error) {
		err = os.RemoveAll(half)
		return err == nil, nil
	})
	if err = cmp.Or(err, ended); err != nil {
		return fmt.Errorf("remove a half-made cluster: %w", err)
	}
	return nil
}

// within asks every few milliseconds whether something is done, for a while. It returns false where the time is over,
// and an error where asking fails or ctx ends first.
func within(ctx context.Context, most time.Duration, done func() (bool, error)) (bool, error) {
	deadline := time.After(most)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if is, err := done(); is || err != nil {
			return is, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-deadline:
			return false, nil
		case <-tick.C:
		}
	}
}

// escapeGlob makes a path match only itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// stopLeftovers stops every process of an earlier server on this cluster, first the clean way. They are known by the
// cluster's name: on the server's command line, and in the title of each of its children.
func (s *Server) stopLeftovers(ctx context.Context) error {
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{syscall.SIGINT, time.Minute}, {syscall.SIGQUIT, killAfter}, {syscall.SIGKILL, killAfter}} {
		left, err := s.leftovers()
		if err != nil || len(left) == 0 {
			return err
		}
		s.log.Warn("stopping the PostgreSQL that an earlier process left running",
			"pid", left[0].pid, "signal", step.sig.String())
		for _, p := range left {
			// To a child SIGINT means only "cancel your query".
			if step.sig != syscall.SIGINT || strings.Contains(p.args, "cluster_name=") {
				_ = syscall.Kill(p.pid, step.sig) // gone already is fine
			}
		}
		gone, err := within(ctx, step.wait, func() (bool, error) {
			left, err := s.leftovers()
			return len(left) == 0, err
		})
		if gone || err != nil {
			return err
		}
	}
	return errors.New("an earlier PostgreSQL could not be stopped")
}

func (s *Server) leftovers() ([]processInfo, error) {
	all, err := s.account.processes()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p processInfo) bool {
		return !strings.Contains(p.args, "-c cluster_name="+s.name+" ") && !strings.HasPrefix(p.args, "postgres: "+
			s.name+": ")
	}), nil
}

// refuseRival leaves a server alone that somebody else started on this cluster.
func (s *Server) refuseRival() error {
	all, err := s.account.processes()
	if err != nil {
		return err
	}
	for _, p := range all {
		if strings.Contains(p.args+" ", "-D "+s.cluster()+" ") {
			return fmt.Errorf(
				"%s is still in use by a PostgreSQL that somebody else started, process %d: stop it first", s.cluster(),
				p.pid)
		}
	}
	return nil
}

// claimPidFile makes a stale postmaster.pid harmless when its number has been given to another process meanwhile, which
// PostgreSQL would take for a running server. Removing the file would also remove PostgreSQL's second interlock, the
// shared memory that it names; so only the number is replaced, by our own: a server's parent is never taken for a
// rival.
func (s *Server) claimPidFile() error {
	root, err := os.OpenRoot(s.cluster())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	text, err := root.ReadFile("postmaster.pid")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	number, rest, _ := bytes.Cut(text, []byte{'\n'})
	pid, err := strconv.Atoi(string(bytes.TrimSpace(number)))
	if err != nil {
		return root.Remove("postmaster.pid") // the machine went down while it was written: nothing ran yet
	}
	if !alive(max(pid, -pid)) {
		return nil // PostgreSQL sees that too
	}
	s.log.Warn("PostgreSQL's pid file names a process that is not ours", "pid", pid)
	return root.WriteFile("postmaster.pid", fmt.Appendf(nil, "%d\n%s", os.Getpid(), rest), 0o600)
}

// makeSocketDir makes the socket's folder anew. Its name can be guessed and its parent is open to all, so a folder that
// someone else put there is refused.
func (s *Server) makeSocketDir() error {
	if owner, exists, err := ownerOf(s.socket); err != nil {
		return err
	} else if exists && owner != s.account.uid && owner != os.Geteuid() {
		return fmt.Errorf("make PostgreSQL's socket folder: %s belongs to uid %d; remove it", s.socket, owner)
	}
	err := os.RemoveAll(s.socket)
	if err == nil {
		err = os.Mkdir(s.socket, 0o700)
	}
	if err == nil {
		err = s.account.own(s.socket)
	}
	if err != nil {
		return fmt.Errorf("make PostgreSQL's socket folder: %w", err)
	}
	return nil
}
