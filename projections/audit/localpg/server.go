package localpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Config says which PostgreSQL to run.
type Config struct {
	// DataDir holds everything but the socket (see the package's documentation). It is created if it is missing.
	DataDir string
	// Logger gets starts, stops and clean-ups; nil: no log.
	Logger *slog.Logger
	// Fast renounces durability against a crash of the machine, and allows more connections: for tests. Data still
	// survives a crash of the server or of this process.
	Fast bool
	// BinDir is the folder of the binaries; empty: the newest installed version, or the one that made the cluster.
	BinDir string
	// Settings, as name=value, override ours; Access are lines that are added to pg_hba.conf.
	Settings, Access []string
	// Port is the port in the socket's name, and of the addresses in Settings; 5432 if it is empty.
	Port string
}

// Server is a PostgreSQL that belongs to this process. Its methods are safe for concurrent use.
type Server struct {
	dir     string // absolute, without links
	cfg     Config
	log     *slog.Logger
	account account
	name    string // marks our processes, by cluster_name
	socket  string // the socket's folder
	lock    *flock.Flock

	mu   sync.Mutex
	proc *process // nil: stopped
}

// Start runs PostgreSQL on cfg.DataDir and returns when it answers. The first start makes the cluster (about a second).
// Start stops a server that an earlier process left running there. ctx bounds only the start; after a crash PostgreSQL
// may take long to recover. The server runs until Stop, or until this process ends in any way.
//
// Errors: ErrNotInstalled, ErrInUse, ErrForeignCluster; any other carries the end of the server's log.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func newServer(cfg Config) (*Server, error) {
	if cfg.DataDir == "" {
		return nil, errors.New("localpg: no data directory given")
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make PostgreSQL's data directory: %w", err)
	}
	if cfg.Port == "" {
		cfg.Port = "5432"
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("resolve PostgreSQL's data directory: %w", err)
	}
	acc, err := accountFor(filepath.Join(dir, "cluster"))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(dir))
	id := hex.EncodeToString(sum[:6])
	s := &Server{
		dir: dir, cfg: cfg, log: cfg.Logger, account: acc, name: "turnledger-" + id,
		socket: fmt.Sprintf("%s/turnledger-pg-%d-%s", socketRoot, acc.uid, id),
		lock:   flock.New(filepath.Join(dir, "lock")),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// socketRoot is not the temporary folder of the environment: that may be long, and closed to PostgreSQL's account.
const socketRoot = "/tmp"

// URL returns the URL for pgx (or psql): the database turnledger, as its owner. It does not change with a Restart or a
// new process, as long as the data directory keeps its path. Only this process's user, root and PostgreSQL's account
// may connect.
func (s *Server) URL() string { return s.databaseURL("turnledger") }

func (s *Server) databaseURL(database string) string {
	return "postgres://turnledger@/" + database + "?host=" + url.QueryEscape(s.socket) + "&port=" + s.cfg.Port +
		"&sslmode=disable"
}

// LogFile returns the path of PostgreSQL's log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "server.log") }

// Done returns a channel that is closed when the current server process has ended, for any reason. After a Restart,
// call Done again.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return s.proc.done
}

// Restart stops the server if it runs, and starts it. It also starts a stopped or crashed server.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.start(ctx)
}

// Stop disconnects the clients, lets PostgreSQL write a checkpoint, waits for its end and removes the socket. If ctx
// ends first, or has ended already, PostgreSQL is stopped immediately, as in a crash (this is safe: the next start
// recovers), and Stop returns ctx's error. Stopping a stopped server does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	err := s.proc.stop(ctx)
	s.proc = nil
	if err != nil {
		err = fmt.Errorf("stop PostgreSQL: %w", err)
	}
	s.log.Info("PostgreSQL stopped")
	return errors.Join(err, os.RemoveAll(s.socket), s.lock.Unlock())
}

func (s *Server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return nil
	}
	if err := s.takeLock(ctx); err != nil {
		return err
	}
	proc, err := s.bringUp(ctx)
	if err != nil {
		return errors.Join(err, s.lock.Unlock())
	}
	s.proc = proc
	s.log.Info("PostgreSQL started", "pid", proc.cmd.Process.Pid, "path", s.dir)
	return nil
}

// takeLock takes the lock, and waits a little for it: a process that was just killed may still be ending.
func (s *Server) takeLock(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := s.lock.TryLockContext(patience, 10*time.Millisecond)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("lock PostgreSQL's data directory: %w", ctx.Err())
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s", ErrInUse, s.dir)
	case err != nil:
		return fmt.Errorf("lock PostgreSQL's data directory: %w", err)
	}
	return nil
}

// bringUp does the work of start, with the lock held.
func (s *Server) bringUp(ctx context.Context) (*process, error) {
	want, err := s.clusterVersion()
	if err != nil {
		return nil, err
	}
	bin, err := findBinaries(ctx, s.cfg.BinDir, want)
	if err != nil {
		return nil, err
	}
	if err := s.clearLeftovers(ctx); err != nil {
		return nil, fmt.Errorf("clear what an earlier PostgreSQL left behind: %w", err)
	}
	if want == 0 {
		if err := s.makeCluster(ctx, bin); err != nil {
			return nil, err
		}
	}
	if err := s.writeAccess(); err != nil {
		return nil, fmt.Errorf("write PostgreSQL's access rules: %w", err)
	}
	if err := s.makeSocketDir(); err != nil {
		return nil, err
	}
	proc, err := s.serve(ctx, bin)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.socket))
	}
	return proc, nil
}
