package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// settings returns settings for the command line, where they override the files.
func (s *Server) settings() []string {
	pairs := []string{
		"listen_addresses=", "port=" + s.cfg.Port, "unix_socket_directories=" + s.socket,
		"unix_socket_permissions=0700",
		"cluster_name=" + s.name,
		"timezone=UTC", "log_timezone=UTC", "jit=off",
		// The server's log must never hold a client's text. Even the first line of an error may quote a value ("invalid
		// input syntax for type uuid: …"), so the server logs no errors of clients, who get them anyway.
		"log_min_messages=log", "log_min_error_statement=panic", "log_error_verbosity=terse", "log_statement=none",
		"log_min_duration_statement=-1", "log_parameter_max_length=0", "log_parameter_max_length_on_error=0",
		"log_checkpoints=off", "logging_collector=off", "log_destination=stderr",
	}
	if s.cfg.Fast {
		pairs = append(pairs, "max_connections=200", "fsync=off", "full_page_writes=off",
			"wal_level=minimal", "max_wal_senders=0", "shared_buffers=64MB", "checkpoint_timeout=1h")
	} else {
		pairs = append(pairs, "max_connections=100")
	}
	pairs = append(pairs, s.cfg.Settings...)
	args := make([]string, 0, 2*len(pairs))
	for _, p := range pairs {
		args = append(args, "-c", p)
	}
	return args
}

// serve starts the server and waits until it answers. If our process dies, the server gets the signal for a fast
// shutdown.
func (s *Server) serve(ctx context.Context, bin binaries) (*process, error) {
	logFile, from, err := s.openLog()
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL's log: %w", err)
	}
	defer func() { _ = logFile.Close() }() // the child has its own
	cmd, release, err := s.command(bin.path("postgres"), s.cluster(), syscall.SIGINT, s.settings()...)
	if err != nil {
		return nil, err
	}
	defer release()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	p, err := launch(cmd)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := s.awaitReady(ctx, p); err != nil {
		stopped, cancel := context.WithCancel(ctx)
		cancel() // at once
		_ = p.stop(stopped)
		return nil, fmt.Errorf("start PostgreSQL: %w\n%s", err, s.logSince(from))
	}
	return p, nil
}

// maxLog is the size at which a start renames the log; one older file is kept.
const maxLog = 8 << 20

func (s *Server) openLog() (f *os.File, size int64, err error) {
	if info, err := os.Stat(s.LogFile()); err == nil && info.Size() > maxLog {
		if err := os.Rename(s.LogFile(), s.LogFile()+".1"); err != nil {
			return nil, 0, err
		}
	}
	f, err = os.OpenFile(s.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	size, err = f.Seek(0, io.SeekEnd)
	return f, size, err
}

// logSince returns the log from an offset on, at most its last lines.
func (s *Server) logSince(from int64) string {
	text, _ := os.ReadFile(s.LogFile()) // the error that it is added to says more
	return lastLines(text[min(int(from), len(text)):])
}

// lastLines returns the end of a text, short enough for an error.
func lastLines(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte{'\n'})
	return string(bytes.Join(lines[max(0, len(lines)-8):], []byte{'\n'}))
}

// awaitReady polls until the server accepts connections, and creates our database if it is missing.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	_, err := within(ctx, math.MaxInt64, func() (bool, error) {
		err := s.ensureDatabase(ctx)
		if answer, ok := errors.AsType[*pgconn.PgError](err); err == nil || ok && answer.Code != cannotConnectNow {
			return true, err
		}
		select {
		case <-p.done:
			return true, fmt.Errorf("it ended at once: %w", p.err)
		default:
			return false, nil
		}
	})
	return err
}

// cannotConnectNow is the error code of a server that still recovers, or shuts down.
const cannotConnectNow = "57P03"

func (s *Server) ensureDatabase(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.databaseURL("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'turnledger')").Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE turnledger")
	return err
}
