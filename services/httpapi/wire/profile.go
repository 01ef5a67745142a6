package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// ErrProfilesOpen says that others than this machine could read the profiles.
var ErrProfilesOpen = errors.New("profiles show what the process does, and nobody is asked for a key: " +
	"set TURNLEDGER_PPROF to an address of this machine, such as 127.0.0.1:6060")

// CheckProfiles refuses an address that is not host:port on loopback.
func CheckProfiles(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return errors.New("want host:port, such as 127.0.0.1:6060")
	}
	if !Loopback(addr) {
		return ErrProfilesOpen
	}
	return nil
}

// OpenProfiles serves this process's profiles (net/http/pprof) below /debug/pprof/ on an address of this machine. The
// caller closes the server. The command line is not among them, since it may hold keys. A name that somebody else may
// have pointed to this machine is refused, so that no web page reads them.
func OpenProfiles(ctx context.Context, addr string) (*http.Server, error) {
	if err := CheckProfiles(addr); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for profiles: %w (set TURNLEDGER_PPROF to another port)", err)
	}
	server := &http.Server{Addr: l.Addr().String(), ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if !local(r.Host) {
				http.Error(w, "profiles are for this machine only", http.StatusForbidden)
				return
			}
			mux.ServeHTTP(w, r)
		})}
	go func() { _ = server.Serve(l) }()
	return server, nil
}
