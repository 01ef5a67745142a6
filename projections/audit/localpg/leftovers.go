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

	"github.com/turnledger/turnledger/events/pause"
)

// clearLeftovers removes what a dead process of ours has left: a server that still runs or is stopping, a half-made
// cluster, a pid file whose number now belongs to another process. We hold the lock, so none of this belongs to a live
// Server.
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
	return s.claimPidFile()
}

// removeHalf removes a half-made cluster. It retries for a while: if initdb was killed, its server runs on until it
// finds its input closed, and may still create files.
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

// within calls done every few milliseconds until it returns true. It returns false if the time is over, and an error if
// done fails or ctx ends first.
func within(ctx context.Context, most time.Duration, done func() (bool, error)) (bool, error) {
	for began := time.Now(); ; {
		if is, err := done(); is || err != nil {
			return is, err
		}
		if time.Since(began) > most {
			return false, nil
		}
		if !pause.For(ctx, 10*time.Millisecond) {
			return false, ctx.Err()
		}
	}
}

// escapeGlob escapes a path so that, as a pattern, it matches only itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// stopLeftovers stops every process of an earlier server on this cluster, at first gracefully. It finds them by the
// cluster's name, in the server's command line and in the titles of its children.
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

// claimPidFile returns an error if another program runs a server on this cluster, which is then left alone. It repairs
// a stale postmaster.pid whose number belongs to another process by now, since PostgreSQL would take that process for a
// running server. It replaces the number by our own, because PostgreSQL never takes its parent
// for a rival. It does not remove the file, since that would also remove PostgreSQL's second interlock, the shared
// memory that the file names.
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
	all, err := s.account.processes()
	for _, p := range all {
		if p.pid == pid && strings.Contains(p.args+" ", "-D "+s.cluster()+" ") {
			return fmt.Errorf("%s is still in use by a PostgreSQL that somebody else started, process %d: "+
				"stop it first", s.cluster(), pid)
		}
	}
	if err != nil {
		return err
	}
	s.log.Warn("PostgreSQL's pid file names a process that is not ours", "pid", pid)
	return root.WriteFile("postmaster.pid", fmt.Appendf(nil, "%d\n%s", os.Getpid(), rest), 0o600)
}

// makeSocketDir makes a new folder for the socket. The folder's name can be guessed, and its parent is writable for
// all, so a folder that another user has made is refused.
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
