package embedded

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Sync says who makes a write durable before it is acknowledged.
type Sync string

// With Group, the log's durability gate makes writes durable, with shared fsyncs. With Always, the server syncs each
// message by itself. With None, nothing is synced: a power cut loses acknowledged turns.
const (
	Group  Sync = "group"
	Always Sync = "always"
	None   Sync = "none"
)

// Name is the server's name, as its clients see it.
const Name = "turnledger"

// MaxPayload is the server's limit for a message, in bytes.
const MaxPayload = 8 << 20

var (
	// ErrLocked: another process uses the store directory.
	ErrLocked = errors.New("the data directory is in use by another process")
	// ErrListen: the listen address is malformed, or may not be used.
	ErrListen = errors.New("bad NATS listen address")
)

// tlsTimeout is how long a client may take for the TLS handshake.
const tlsTimeout = 5 * time.Second

// Config of a server.
type Config struct {
	// Dir is the store directory; it is made if missing.
	Dir  string
	Sync Sync
	// Listen is host:port of a NATS listener, empty for none. Off loopback it needs
	// User and Password.
	Listen         string
	User, Password string
	// TLS is the certificate of the listener, and which clients it accepts; nil: no TLS.
	TLS *tls.Config
	// Memory is a tmpfs, for batches that are staged; /dev/shm by default.
	Memory string
	// LookEvery is how often Run looks whether the server takes writes; 1 s by default.
	LookEvery time.Duration
	Logger    *slog.Logger
}

// Server is a running server.
type Server struct {
	cfg  Config
	ns   *server.Server
	log  *adapter
	lock *flock.Flock
	stop sync.Once
	// begin is locked while JetStream is restarted, and read-locked by callers of Hold.
	begin   sync.RWMutex
	staging staging
}

// Start locks the directory and starts the server. It returns when the server
// takes connections and JetStream is up.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	opts, err := options(cfg)
	if err != nil {
		return nil, err
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	lock := flock.New(lockName(cfg.Dir))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the store directory: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s; stop it, or set another TURNLEDGER_DATA_DIR", ErrLocked, cfg.Dir)
	}
	s := &Server{cfg: cfg, lock: lock, log: newAdapter(cfg.Logger),
		staging: staging{dir: cfg.Dir, memory: cmp.Or(cfg.Memory, sharedMemory)}}
	err = errors.Join(mend(cfg.Dir), s.staging.adopt(), ctx.Err())
	if err == nil {
		err = s.start(ctx, opts)
	}
	if err == nil {
		err = s.restage()
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// lockName returns the file whose lock says that a process uses a store directory.
func lockName(dir string) string { return filepath.Join(dir, "turnledger.lock") }

func options(cfg Config) (*server.Options, error) {
	opts := &server.Options{
		ServerName: Name, DontListen: true, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: cfg.Dir, MaxPayload: MaxPayload,
	}
	if cfg.Dir == "" {
		return nil, errors.New("the store directory must be named") // the server would use a temporary one
	}
	switch cfg.Sync {
	case Group:
		opts.SyncInterval = time.Second
	case Always:
		opts.SyncAlways = true
	case None:
	default:
		return nil, fmt.Errorf("sync must be group, always or none, not %q", cfg.Sync)
	}
	if cfg.Listen == "" {
		return opts, nil
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w: want host:port: %w", ErrListen, err)
	}
	if opts.Port, err = strconv.Atoi(port); err != nil || opts.Port < 0 || opts.Port > 65535 {
		return nil, fmt.Errorf("%w: the port must be a number up to 65535", ErrListen)
	}
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if !loopback(host) && (cfg.User == "" || cfg.Password == "") {
		return nil, fmt.Errorf("%w: %s is not loopback: put credentials into it (nats://user:password@host:port)",
			ErrListen, cfg.Listen)
	}
	if cfg.TLS != nil {
		opts.TLSConfig, opts.TLSTimeout = cfg.TLS, tlsTimeout.Seconds()
		opts.TLSVerify = cfg.TLS.ClientAuth == tls.RequireAndVerifyClientCert
	}
	opts.DontListen, opts.Host, opts.Username, opts.Password = false, host, cfg.User, cfg.Password
	return opts, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// makeDir creates a directory and its parents durably. Otherwise a power cut could lose the name of the folder, and
// with it the whole log.
func makeDir(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	f, err := os.Open(parent) //nolint:gosec // the folder above the one that the operator named
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}

func (s *Server) start(ctx context.Context, opts *server.Options) error {
	ns, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	s.ns = ns
	ns.SetLoggerV2(s.log, false, false, false)
	ns.Start()
	for ctx.Err() == nil {
		switch {
		case s.log.fatal() != "" && s.cfg.Listen != "" && ns.Addr() == nil:
			return fmt.Errorf("%w: %s", ErrListen, s.log.fatal())
		case s.log.fatal() != "":
			return fmt.Errorf("nats server: %s", s.log.fatal())
		case !ns.ReadyForConnections(10 * time.Millisecond):
		case !ns.JetStreamEnabled():
			return errors.New("nats server: JetStream did not start; " +
				"look at the log above, and at the free space of the data directory")
		default:
			return nil
		}
	}
	return ctx.Err()
}

// Connect returns a connection within the process.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{
		nats.InProcessServer(s.ns), nats.MaxReconnects(-1), nats.Name("turnledger"),
		nats.UserInfo(s.cfg.User, s.cfg.Password),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.log.Warnf("%v", err) }),
	}, opts...)
	nc, err := nats.Connect("", all...)
	if err != nil {
		return nil, fmt.Errorf("connect in process: %w", err)
	}
	return nc, nil
}

// GateDir returns the store directory for the log's durability gate, or "" if Sync is not Group.
func (s *Server) GateDir() string {
	if s.cfg.Sync == Group {
		return s.cfg.Dir
	}
	return ""
}

// URL returns the URL of the NATS listener without credentials, or "" without a listener.
func (s *Server) URL() string {
	if s.cfg.Listen == "" {
		return ""
	}
	u := url.URL{Scheme: "nats", Host: s.ns.Addr().String()}
	if s.cfg.TLS != nil {
		u.Scheme = "tls"
	}
	return u.String()
}

// Stop ends the server and releases the directory; it may be called again. Callers drain their connections first, since
// lame duck mode does nothing without a listener.
func (s *Server) Stop() {
	s.stop.Do(func() {
		if s.ns != nil {
			s.ns.Shutdown()
			s.ns.WaitForShutdown()
			_ = s.staging.remove()
			_ = os.Remove(running(s.cfg.Dir)) // a clean stop: the next start need not repair
		}
		_ = s.lock.Unlock()
	})
}

// FreeListener returns the usual port of 127.0.0.1 if nobody has it, else "".
func FreeListener(ctx context.Context) string {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:4222")
	if err != nil {
		return ""
	}
	_ = l.Close()
	return "127.0.0.1:4222"
}
