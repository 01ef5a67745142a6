package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func (s *Server) cluster() string { return filepath.Join(s.dir, "cluster") }

// stagingPrefix begins the name of an unfinished cluster.
const stagingPrefix = "cluster.new-"

// clusterVersion is the major version that made the cluster, or 0 if there is none.
func (s *Server) clusterVersion() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.cluster(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		// An empty folder is removed. Any other folder may hold a user's files, and is left alone.
		if err := os.Remove(s.cluster()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("%w: %s holds something else", ErrForeignCluster, s.cluster())
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the cluster's version: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%w: %s has no readable PG_VERSION", ErrForeignCluster, s.cluster())
	}
	return major, nil
}

// makeCluster runs initdb in a folder beside the final one, and renames it when it is complete.
func (s *Server) makeCluster(ctx context.Context, bin binaries) (err error) {
	staging, err := os.MkdirTemp(s.dir, stagingPrefix)
	if err != nil {
		return fmt.Errorf("make the PostgreSQL cluster: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeHalf(context.WithoutCancel(ctx), staging))
		}
	}()
	if err := s.account.own(staging); err != nil {
		return fmt.Errorf("make the PostgreSQL cluster: %w", err)
	}
	if err := s.initdb(ctx, bin, staging); err != nil {
		return err
	}
	if err := os.Rename(staging, s.cluster()); err != nil {
		return fmt.Errorf("make the PostgreSQL cluster: %w", err)
	}
	s.log.Info("PostgreSQL cluster made", "path", s.cluster(), "version", bin.major)
	return syncDir(s.dir)
}

func (s *Server) initdb(ctx context.Context, bin binaries, dir string) error {
	args := []string{
		"--username=turnledger", "--encoding=UTF8", "--locale=C", "--auth-local=peer", "--auth-host=reject",
	}
	if s.cfg.Fast {
		args = append(args, "--no-sync")
	} else {
		args = append(args, "--data-checksums")
	}
	cmd, release, err := s.command(bin.path("initdb"), dir, syscall.SIGKILL, args...)
	if err != nil {
		return err
	}
	defer release()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := run(ctx, cmd); err != nil {
		return fmt.Errorf("make the PostgreSQL cluster: initdb: %w\n%s", err, lastLines(out.Bytes()))
	}
	return nil
}

// command prepares one of PostgreSQL's programs to work on dir. To another account dir is opened here and handed down,
// if the system has paths for that: a folder above dir may be closed to the account (a home of mode 0700).
func (s *Server) command(program, dir string, sig syscall.Signal, args ...string) (*exec.Cmd, func(), error) {
	release := func() {}
	var handed []*os.File
	if s.account.drop && descriptorPath != "" {
		f, err := os.Open(dir) //nolint:gosec // our own data directory
		if err != nil {
			return nil, nil, fmt.Errorf("open the PostgreSQL cluster: %w", err)
		}
		release = func() { _ = f.Close() }
		handed, dir = []*os.File{f}, descriptorPath
	}
	//nolint:gosec,noctx // found by us; run and launch watch it
	cmd := exec.Command(program, append([]string{"-D", dir}, args...)...)
	cmd.ExtraFiles = handed
	s.account.prepare(cmd, sig)
	return cmd, release, nil
}

// writeAccess writes the access rules: over the socket only (apart from Config.Access), PostgreSQL lets in our user,
// root and its own account, as identified by the kernel. The rules are written at each start, since our user may have
// changed. It uses os.Root because the folder belongs to the account while we may be root: no link may lead outside the
// folder.
func (s *Server) writeAccess() error {
	users := map[string]bool{s.account.name: true}
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		users[u.Username] = true
	}
	if u, err := user.LookupId("0"); err == nil {
		users[u.Username] = true
	}
	var ident strings.Builder
	for name := range users {
		fmt.Fprintf(&ident, "turnledger %q turnledger\n", name)
	}
	root, err := os.OpenRoot(s.cluster())
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.WriteFile("pg_ident.conf", []byte(ident.String()), 0o600); err != nil {
		return err
	}
	lines := append([]string{"local all turnledger peer map=turnledger"}, s.cfg.Access...)
	return root.WriteFile("pg_hba.conf", []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func syncDir(dir string) error {
	f, err := os.Open(dir) //nolint:gosec // our own data directory
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
