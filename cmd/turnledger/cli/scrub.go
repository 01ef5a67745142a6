package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/pause"
)

type scrubCmd struct {
	Dir     string   `arg:"" help:"The store_dir of a NATS server that is stopped." type:"path"`
	Command []string `arg:"" optional:"" help:"After --: the server's command, which is run then."`
	Report  bool     `help:"Tell the log that the server was started after a scrub, once it runs; erasures that wait for that are then proved. TURNLEDGER_NATS_URL is this server's own address."`
	NATSURL string   `name:"nats-url" help:"Address of this server, with its credentials." env:"TURNLEDGER_NATS_URL"`
	config.NATSClient
}

// Run overwrites what a killed server had begun to erase, and starts the server.
func (c *scrubCmd) Run(e *Env) error {
	switch {
	case c.Report && len(c.Command) == 0:
		return fmt.Errorf("%w: scrub: --report needs the server's command: "+
			"turnledger scrub DIR --report -- nats-server …", config.ErrUsage)
	case c.Report && c.NATSURL == "":
		return fmt.Errorf("%w: scrub: --report needs this server's address: set TURNLEDGER_NATS_URL", config.ErrUsage)
	}
	done, lock, err := embedded.Scrub(c.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	e.print("scrubbed %s: %d events overwritten in %d blocks", c.Dir, done.Events, done.Blocks)
	if len(c.Command) == 0 {
		return nil
	}
	return c.runNode(e, lock)
}

// runNode runs the server until it ends. The server holds the directory's lock while it runs.
func (c *scrubCmd) runNode(e *Env, lock *os.File) error {
	node := exec.CommandContext(e.Ctx, c.Command[0], c.Command[1:]...) //nolint:gosec // the operator's command
	node.Stdin, node.Stdout, node.Stderr = os.Stdin, e.Out.Unwrap(), e.Err
	node.ExtraFiles = []*os.File{lock}
	node.Cancel = func() error { return node.Process.Signal(syscall.SIGTERM) }
	before := ""
	if c.Report {
		before, _ = c.ask(e.Ctx) // nobody answers, as it should be
	}
	if err := node.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			select {
			case s := <-signals:
				_ = node.Process.Signal(s) // it has ended
			case <-ctx.Done():
			}
		}
	}()
	if c.Report {
		go c.report(ctx, e, before)
	}
	err := node.Wait()
	if e.Ctx.Err() != nil && node.ProcessState.Success() {
		return nil // it was asked to stop
	}
	if err != nil {
		return fmt.Errorf("the server has ended: %w", err)
	}
	return nil
}

// ask returns the id of the server at the address.
func (c *scrubCmd) ask(ctx context.Context) (id string, err error) {
	nc, err := c.connect()
	if err != nil {
		return "", err
	}
	defer nc.Close()
	return nc.ConnectedServerId(), ctx.Err()
}

func (c *scrubCmd) connect() (*nats.Conn, error) {
	return nats.Connect(c.NATSURL, append(c.Options(), nats.Name("turnledger scrub"), nats.NoReconnect(),
		nats.IgnoreDiscoveredServers(), nats.Timeout(reportPatience))...)
}

// reportPatience bounds one attempt to report, and the pause before the next.
const reportPatience = 5 * time.Second

// report notes with the log that the server was started after a scrub. It tries until it is done: there may be no log
// yet, or no majority of the servers.
func (c *scrubCmd) report(ctx context.Context, e *Env, before string) {
	why, wait := "", pause.Growing(50*time.Millisecond, reportPatience)
	for {
		err := c.reportOnce(ctx, before)
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.Is(err, errOther) && why != err.Error() {
			why = err.Error()
			e.printErr("turnledger scrub: not reported: %s", why)
		}
		if !pause.For(ctx, wait.NextBackOff()) {
			return
		}
	}
}

// errOther: the address leads to another server than the one that was started.
var errOther = errors.New("TURNLEDGER_NATS_URL was answered before this server was started; it must be its own address")

func (c *scrubCmd) reportOnce(ctx context.Context, before string) error {
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if nc.ConnectedServerId() == before {
		return errOther
	}
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	notes, err := jetlog.FindNotes(ctx, nc)
	if err != nil {
		return err
	}
	return overwrite.NoteScrubbed(ctx, notes, nc.ConnectedServerName(), nc.ConnectedServerId())
}
