package jetlog_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// wire is the connection of a client to a server in process, on which a test may do what a network or a
// server can: lose a message of the server, or be late with a request.
type wire struct {
	server *server.Server

	mu sync.Mutex
	// sending is called with what the client sends, before it goes out.
	sending func([]byte)
	// loses says what of a message of the server never arrives, by the first line of the message.
	loses func(line string) error
}

var (
	errLostMessage    = errors.New("the message is lost")
	errLostConnection = errors.New("the message is lost, and the connection with it")
)

// do sets what happens on the wire from now on.
func (w *wire) do(sending func([]byte), loses func(line string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending, w.loses = sending, loses
}

func (w *wire) now() (sending func([]byte), loses func(line string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sending, w.loses
}

func (w *wire) InProcessConn() (net.Conn, error) {
	c, err := w.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	r, in := io.Pipe()
	go w.receive(c, in)
	return &wiredConn{Conn: c, wire: w, in: r}, nil
}

// receive hands over what the server sends, message by message.
func (w *wire) receive(c net.Conn, to *io.PipeWriter) {
	from := bufio.NewReader(c)
	for {
		frame, err := from.ReadBytes('\n')
		if line := string(frame); err == nil && (strings.HasPrefix(line, "MSG ") || strings.HasPrefix(line, "HMSG ")) {
			fields := strings.Fields(line)
			size := 0
			if _, err = fmt.Sscan(fields[len(fields)-1], &size); err == nil {
				body := make([]byte, size+2)
				_, err = io.ReadFull(from, body)
				frame = append(frame, body...)
			}
			if _, loses := w.now(); err == nil && loses != nil {
				err = loses(line)
			}
		}
		if errors.Is(err, errLostMessage) {
			continue
		}
		if err == nil {
			_, err = to.Write(frame)
		}
		if err != nil {
			_ = to.CloseWithError(err)
			return
		}
	}
}

type wiredConn struct {
	net.Conn
	wire *wire
	in   *io.PipeReader
}

func (c *wiredConn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (c *wiredConn) Write(b []byte) (int, error) {
	sending, _ := c.wire.now()
	if sending != nil {
		sending(b)
	}
	return c.Conn.Write(b)
}

func (c *wiredConn) Close() error {
	_ = c.in.Close()
	return c.Conn.Close()
}

// plainServer starts a server that only this process reaches, as others than Turnledger would.
func plainServer(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	o.DontListen, o.NoSigs, o.NoLog = true, true, true
	ns := must.Get(server.NewServer(&o))(t)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	return ns
}

// newWire returns a wire to a server of its own.
func newWire(t *testing.T) *wire {
	t.Helper()
	return &wire{server: plainServer(t, server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20})}
}

// connectTo connects to a server, or over a wire to its server.
func connectTo(t *testing.T, to nats.InProcessConnProvider) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(to), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func openOn(t *testing.T, nc *nats.Conn, cfg jetlog.Config) *jetlog.Log {
	t.Helper()
	return must.Get(jetlog.Open(t.Context(), nc, cfg))(t)
}

// wired returns a log whose connection goes over a wire, and one with a connection of its own.
func wired(t *testing.T) (w *wire, log, beside *jetlog.Log, js jetstream.JetStream) {
	t.Helper()
	w = newWire(t)
	nc := connectTo(t, w.server)
	beside = openOn(t, nc, jetlog.Config{})
	return w, openOn(t, connectTo(t, w), jetlog.Config{}), beside, natstest.JetStream(t, nc)
}

// TestALostDeliveryIsNoticed loses one event on its way to a tail, and not those after it.
func TestALostDeliveryIsNoticed(t *testing.T) {
	t.Parallel()
	const count = 20
	w, log, beside, _ := wired(t)
	for _, nth := range []int32{1, 7, count - 1} {
		t.Run(fmt.Sprint("number ", nth), func(t *testing.T) {
			var n atomic.Int32
			w.do(nil, func(line string) error {
				if strings.Contains(line, "$JS.ACK.") && n.Add(1) == nth {
					return errLostMessage
				}
				return nil
			})
			tail := openTail(t, log, 0, jetlog.TailOptions{})
			for i := logtest.Head(t, beside, 0); i < count; i++ {
				logtest.Add(t, beside, "s", fmt.Sprint(i), "x")
			}
			followed(t, tail, count)
			require.Greater(t, n.Load(), int32(count), "nothing was lost")
		})
	}
}

// TestAStreamMadeAnewWhileATailConnectsIsNoticed makes the stream anew between the look at it and the consumer:
// one on the new stream would wait in silence until that is as long as the old one was.
func TestAStreamMadeAnewWhileATailConnectsIsNoticed(t *testing.T) {
	t.Parallel()
	w, log, beside, js := wired(t)
	for i := range 5 {
		logtest.Add(t, beside, "s", fmt.Sprint(i), "x")
	}
	anew := sync.OnceFunc(func() {
		stream, err := js.Stream(t.Context(), events.StreamName(0))
		if err != nil {
			t.Error(err)
			return
		}
		cfg := stream.CachedInfo().Config
		if err := js.DeleteStream(t.Context(), cfg.Name); err != nil {
			t.Error(err)
		}
		// The server may still remove the files of the one before.
		for late := time.Now().Add(hang.Limit); time.Now().Before(late); {
			if _, err = js.CreateStream(t.Context(), cfg); err == nil {
				return
			}
			<-time.After(time.Millisecond)
		}
		t.Error(err)
	})
	w.do(func(b []byte) {
		if bytes.Contains(b, []byte("$JS.API.CONSUMER.CREATE.")) {
			anew()
		}
	}, nil)
	tail, err := log.Tail(deadline(t, hang.Limit), 0, 5, jetlog.TailOptions{})
	if err == nil {
		tail.Close()
	}
	require.ErrorIs(t, err, jetlog.ErrStream)
}

func TestRestartKeepsEverythingAndKnowsDuplicates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []string
	for life := range 3 {
		s := natstest.ServerIn(t, dir, embedded.Group)
		log := natstest.LogOn(t, s, 4)
		for i := range 50 * life {
			ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", fmt.Sprint(i))}})
			require.NoError(t, err)
			require.Equal(t, jetlog.Ack{Position: events.Position{Partition: log.Partition("s"), Seq: uint64(i + 1)},
				Duplicate: true}, ack)
			require.NoError(t, log.Durable(t.Context(), ack.Position))
		}
		for i := 50 * life; i < 50*(life+1); i++ {
			f := logtest.Fact("s", fmt.Sprint(i))
			want = append(want, f.EventID())
			require.False(t, logtest.Append(t, log, f).Duplicate)
		}
		require.Equal(t, want, logtest.IDs(t, log, "s"))
		s.Stop()
	}
}

func TestServerThatRestartsMidLoadLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	r := logtest.NewRestarting(t)
	log := r.Log()
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	const writers, each = 8, 60
	var load sync.WaitGroup
	var done atomic.Int64
	for w := range writers {
		load.Go(func() {
			for i := range each {
				fact := logtest.Fact(fmt.Sprint("s", w), fmt.Sprint(i))
				if !assert.NoError(t, logtest.Persist(t.Context(), log, fact)) {
					return
				}
				done.Add(1)
			}
		})
	}
	for n := range int64(3) {
		hang.Until(t, func() bool { return done.Load() > n*writers*each/4 })
		r.Restart()
	}
	load.Wait()
	for w := range writers {
		var want []string
		for i := range each {
			want = append(want, logtest.Fact(fmt.Sprint("s", w), fmt.Sprint(i)).EventID())
		}
		require.Equal(t, want, logtest.IDs(t, log, fmt.Sprint("s", w)))
	}
	followed(t, tail, writers*each)
}

// followed holds that a tail gives events 1 to n, each once and in order.
func followed(t *testing.T, tail *jetlog.Tail, n int) {
	t.Helper()
	ctx := deadline(t, hang.Limit)
	for seen := uint64(0); seen < uint64(n); {
		batch, err := tail.Next(ctx)
		require.NoError(t, err, "after %d of %d", seen, n)
		for _, m := range batch {
			seen++
			require.Equal(t, seen, m.Position.Seq)
		}
	}
}
