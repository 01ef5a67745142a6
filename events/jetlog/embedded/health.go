package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
	"github.com/turnledger/turnledger/events/pause"
)

// ErrNoWrites says that the server takes no writes. If its disk was full, Run makes it take writes again when there is
// room.
var ErrNoWrites = errors.New("the log takes no writes")

// Healthy returns why JetStream takes no writes, or nil if it takes them. JetStream stops for good at a failed write,
// for example on a full disk (a store never writes after an error, or JetStream is switched off). It also stops while
// its files exceed its limit: three quarters of the sum of their size and the space that was free at its start.
func (s *Server) Healthy() error {
	if _, why := s.sick(); why != "" {
		return fmt.Errorf("%w: %s: %s", ErrNoWrites, why, s.advice(s.used()))
	}
	return nil
}

// sick returns why JetStream takes no writes, "" if it takes them. The text of why may change while the reason lasts,
// such as a size in it; what stays the same.
func (s *Server) sick() (what, why string) {
	if !s.ns.JetStreamEnabled() {
		return "off", "JetStream is switched off"
	}
	if why := sickness(s.ns.Healthz(&server.HealthzOptions{Details: true})); why != "" {
		return why, why
	}
	if c := s.ns.JetStreamConfig(); c != nil && s.used() > uint64(max(c.MaxStore, 0)) {
		return "full", fmt.Sprintf("it has %d MB, more than the %d MB that JetStream allows itself",
			s.used()>>20, c.MaxStore>>20)
	}
	return "", ""
}

// sickness returns what is wrong with JetStream; "" if the server reports nothing. It ignores the report that the
// server is not ready for connections. The server has one millisecond to check that, which on a busy machine is too
// short (nats-server 2.15, readyForConnections); Start has waited until the server was ready.
func sickness(h *server.HealthStatus) string {
	for _, e := range h.Errors {
		if e.Type != server.HealthzErrorConn {
			return e.Error
		}
	}
	return ""
}

// used returns how many bytes JetStream has in files, or 0 if it can't tell.
func (s *Server) used() uint64 {
	info, err := s.ns.Jsz(nil)
	if err != nil {
		return 0
	}
	return info.Store
}

// advice returns what an operator can do if the store takes no writes. used is the size of the store in bytes.
func (s *Server) advice(used uint64) string {
	free, needed, err := s.room(used)
	switch {
	case err != nil:
		return err.Error()
	case free < needed:
		return fmt.Sprintf("the data directory has %d MB free and needs %d MB: "+
			"make room, and writes go on by themselves", free>>20, needed>>20)
	default:
		return "the data directory has room: if writes do not go on within a minute, " +
			"look at the log above, and restart Turnledger"
	}
}

// leastRoom is how much must be free before a restart is worthwhile; on a small disk a twentieth of the disk is enough.
const leastRoom = 64 << 20

// room returns how many bytes are free, and how many must be free for a store of used bytes to take writes: JetStream
// allows itself three quarters of the sum of both.
func (s *Server) room(used uint64) (free, needed uint64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.cfg.Dir, &st); err != nil {
		return 0, 0, fmt.Errorf("look at the room of %s: %w", s.cfg.Dir, err)
	}
	size := uint64(st.Bsize) //nolint:gosec,unconvert // a block's size; another type elsewhere
	return st.Bavail * size, used/3 + min(leastRoom, st.Blocks*size/20), nil
}

// How often Run looks, and its pauses between two restarts of JetStream, which double.
const (
	lookEvery   = time.Second
	firstPause  = 10 * time.Second
	longestWait = 10 * time.Minute
)

// Hold keeps Run from restarting JetStream until release is called. A caller that deletes streams or replaces them by
// copies must hold the server: meanwhile a stream's folder exists without its stream, and the server reports that as a
// stream that it could not recover. Hold waits for a restart that is under way. Another process may restore over the
// server's listener and can't call Hold: Run notices that restore by layout.RestoringStream, which exists until the
// restore ends.
func (s *Server) Hold() (release func()) {
	s.begin.RLock()
	return s.begin.RUnlock
}

// restoring reports whether a restore is under way in the server, or was interrupted.
func (s *Server) restoring() bool {
	found, err := filepath.Glob(filepath.Join(escapeGlob(s.cfg.Dir), "jetstream", "*", "streams",
		layout.RestoringStream))
	return err != nil || len(found) > 0
}

// Run checks whether the server takes writes until ctx ends, and then returns nil. If two checks in a row find the same
// reason why it takes none, and the disk has room, Run restarts JetStream in place. Connections stay; a caller that
// needs a consumer creates it again. A single check proves nothing, and neither do two checks that report different
// streams: while a stream is created or deleted, its folder exists without the stream.
func (s *Server) Run(ctx context.Context) error {
	w := watch{Server: s, pause: firstPause}
	for pause.For(ctx, cmp.Or(s.cfg.LookEvery, lookEvery)) {
		w.look()
		s.StageInMemory()
	}
	return nil
}

// watch is the state of Run.
type watch struct {
	*Server
	// before is the what of the last look; logged is set once the failure was logged.
	before string
	logged bool
	// next is when JetStream may be restarted again, and pause the wait after the next restart.
	next  time.Time
	pause time.Duration
}

func (w *watch) look() {
	what, why := w.sick()
	again := what == w.before
	w.before = what
	switch {
	case what == "":
		if w.logged {
			w.log.log.Info("the log takes writes again")
		}
		w.logged, w.next, w.pause = false, time.Time{}, firstPause
		return
	case !again:
		return
	case !w.logged:
		w.logged = true
		w.log.log.Error("no turn can be recorded", "err", w.Healthy())
	}
	if free, needed, err := w.room(w.used()); err != nil || free < needed || time.Now().Before(w.next) {
		return
	}
	if !w.begin.TryLock() {
		return // Hold is in use
	}
	defer w.begin.Unlock()
	if w.restoring() {
		return
	}
	w.log.log.Warn("JetStream is begun anew, since the data directory has room", "err", why)
	if err := w.reopen(); err != nil {
		w.log.log.Error("JetStream can't be begun anew; restart Turnledger if this goes on", "err", err)
	}
	w.next, w.pause = time.Now().Add(w.pause), min(2*w.pause, longestWait)
}

// reopen closes the stores and opens them as at a start. All acknowledged events are in their files; a record that was
// cut short is dropped.
func (s *Server) reopen() error {
	if err := s.ns.ShutdownJetStream(); err != nil {
		return err
	}
	if err := s.ns.EnableJetStream(&server.JetStreamConfig{StoreDir: s.cfg.Dir}); err != nil {
		return err
	}
	return s.restage()
}
