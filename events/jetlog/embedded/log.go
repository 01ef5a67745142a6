package embedded

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// adapter writes the server's log lines through slog. The server's notices become debug lines: Turnledger itself logs
// what an operator needs to know.
type adapter struct {
	log  *slog.Logger
	last atomic.Pointer[string]
}

func newAdapter(log *slog.Logger) *adapter {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &adapter{log: log}
}

// fatal returns the server's last fatal error. The server would end the process on it; with this adapter it goes on
// without the failed part, and start stops it.
func (a *adapter) fatal() string {
	if s := a.last.Load(); s != nil {
		return *s
	}
	return ""
}

func (a *adapter) Noticef(format string, v ...any) {
	a.log.Debug("nats", "line", fmt.Sprintf(format, v...))
}

func (a *adapter) Warnf(format string, v ...any) {
	a.log.Warn("nats", "line", fmt.Sprintf(format, v...))
}

func (a *adapter) Fatalf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	a.last.Store(&line)
	a.log.Error("nats", "line", line)
}

func (a *adapter) Errorf(format string, v ...any) {
	a.log.Error("nats", "line", fmt.Sprintf(format, v...))
}
func (a *adapter) Debugf(string, ...any) {}
func (a *adapter) Tracef(string, ...any) {}
