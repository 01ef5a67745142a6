//go:build linux

package write_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/write"
)

// TestPowerCutLosesNothingAnswered is the durability gate's proof for what a client holds: whatever the
// service answered, duplicates and what another process wrote included, is in the log after the power
// was cut.
func TestPowerCutLosesNothingAnswered(t *testing.T) {
	t.Parallel()
	answers, seeds := 0, int64(6)
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		seeds = 200
	}
	for seed := range seeds {
		l := &lives{seed: seed, sync: embedded.Group, disk: cutfs.Options{OutliveCut: true,
			ReplacingRenameSyncsData: true}}
		// A test of its own, at the end of which its disks go.
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { require.NoError(t, l.run(t)) }) {
			return
		}
		answers += l.answers
	}
	t.Logf("%d power cuts, %d answers, none lost", seeds*livesEach, answers)
}

func TestPowerCutFindsLossOfAnswersWithoutGate(t *testing.T) {
	t.Parallel()
	for seed := range int64(20) {
		l := &lives{seed: seed, sync: embedded.None, disk: cutfs.Options{OutliveCut: true}}
		err := l.run(t)
		if errors.Is(err, errAnswerLost) {
			t.Logf("seed %d: %v", seed, err)
			return
		}
		require.NoError(t, err, "seed %d", seed)
	}
	t.Fatal("no loss found: the power-cut test proves nothing")
}

var errAnswerLost = errors.New("what was answered is lost")

const (
	livesEach   = 3
	cutSessions = 4
	cutWriters  = 8
)

// lives is one log through several power cuts.
type lives struct {
	seed  int64
	sync  embedded.Sync
	disk  cutfs.Options
	fs    *cutfs.FS
	image *cutfs.Image

	mu       sync.Mutex
	answers  int
	promised []promise
}

// promise is what an answer showed of a session.
type promise struct {
	session string
	what    string
	kept    func(*session.State) bool
}

func (l *lives) run(t *testing.T) error {
	for n := range livesEach {
		if err := l.live(t, n); err != nil {
			return fmt.Errorf("life %d: %w", n, err)
		}
	}
	return l.on(t, func(ctx context.Context, log *jetlog.Log) error { return l.check(ctx, log) })
}

// live looks whether all is there that was answered, writes until the power is cut, and keeps what is left.
func (l *lives) live(t *testing.T, n int) error {
	err := l.on(t, func(ctx context.Context, log *jetlog.Log) error {
		if err := l.check(ctx, log); err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(uint64(l.seed), uint64(n)))
		l.fs.CutAfter(1 + rng.Int64N(300))
		l.write(ctx, t, log, rng)
		return ctx.Err() // of a life that did not get to the cut
	})
	l.image = l.fs.Cut(l.seed*100 + int64(n))
	return err
}

// on runs f with a log on what the last cut left.
func (l *lives) on(t *testing.T, f func(context.Context, *jetlog.Log) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	dir := t.TempDir()
	var err error
	if l.image == nil {
		l.fs, err = cutfs.Mount(dir, l.disk)
	} else {
		l.fs, err = l.image.Mount(dir)
	}
	require.NoError(t, err)
	fs := l.fs
	t.Cleanup(func() { require.NoError(t, fs.Unmount()) })
	server, err := embedded.Start(ctx, embedded.Config{Dir: dir, Sync: l.sync, Memory: natstest.Memory(t)})
	if err != nil {
		return err
	}
	defer server.Stop()
	nc, err := server.Connect(nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	// A gate syncs all that is there when it is opened: the stream itself is not what is looked at here.
	log, err := jetlog.Open(ctx, nc, jetlog.Config{GateDir: dir})
	if err == nil && l.sync == embedded.None {
		log, err = jetlog.Open(ctx, nc, jetlog.Config{})
	}
	if err != nil {
		return err
	}
	server.StageInMemory()
	return f(ctx, log)
}

// write has two services write the same turns until the power is cut.
func (l *lives) write(ctx context.Context, t *testing.T, log *jetlog.Log, rng *rand.Rand) {
	life, end := context.WithCancel(ctx)
	defer end()
	var running, writing sync.WaitGroup
	services := make([]*write.Service, 2)
	for i := range services {
		services[i] = write.New(write.On(log), write.Config{Policy: policy,
			Rules: session.Rules{SessionTTL: 24 * time.Hour}})
		running.Go(func() {
			if err := services[i].Run(life); err != nil {
				t.Error(err)
			}
		})
	}
	for w := range cutWriters {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(w)))
		writing.Go(func() {
			for !l.off() && ctx.Err() == nil {
				l.one(ctx, services[rng.IntN(len(services))], rng)
			}
		})
	}
	writing.Wait()
	end()
	running.Wait()
}

func (l *lives) off() bool {
	select {
	case <-l.fs.Off():
		return true
	default:
		return false
	}
}

// one is one write of any kind; few requests, so that many are duplicates.
func (l *lives) one(ctx context.Context, s *write.Service, rng *rand.Rand) {
	sessionID, request := fmt.Sprint("s", rng.IntN(cutSessions)), fmt.Sprint(rng.IntN(40))
	id := events.TurnID(sessionID, request)
	words, identity := "better", fmt.Sprint("ada", sessionID)
	switch rng.IntN(11) {
	case 8:
		l.turn(s.StartTurn(ctx, wholeTurn(sessionID, request)))
	case 9:
		l.turn(s.StartTurn(ctx, wholeTurn("whole-"+sessionID, request)))
	case 10:
		var batch []decide.Start
		for n := range 12 {
			batch = append(batch, wholeTurn(fmt.Sprint("whole-s", n%cutSessions), fmt.Sprint(rng.IntN(40))))
		}
		for _, o := range s.StartTurns(ctx, batch) {
			l.turn(o.Turn, o.Err)
		}
	case 0, 1:
		l.turn(s.StartTurn(ctx, start(sessionID, request)))
	case 2:
		c := start(sessionID, request)
		c.IdentityID = identity
		l.turn(s.StartTurn(ctx, c))
	case 3, 4:
		l.turn(s.FinalizeTurn(ctx, finalize(sessionID, request)))
	case 5:
		l.turn(s.CorrectTurn(ctx, decide.Correct{SessionID: sessionID, TurnID: id, RequestID: "c" + request,
			AnswerNeutral: &words}))
	case 6:
		if rng.IntN(2) == 0 {
			l.turn(s.RedactTurn(ctx, sessionID, decide.Redact{TurnID: id}))
			return
		}
		x, err := s.ResetSession(ctx, sessionID, "")
		l.head(x, err)
	default:
		if rng.IntN(3) > 0 {
			x, err := s.LinkSession(ctx, sessionID, identity, "")
			l.head(x, err)
			return
		}
		thief := fmt.Sprint("eve", rng.Uint32())
		if _, err := s.LinkSession(ctx, sessionID, thief, ""); errors.Is(err, decide.ErrLinkedElsewhere) {
			l.promise(promise{sessionID, "the refusal of " + thief,
				func(st *session.State) bool { return st.Identity != "" && st.Identity != thief }})
			l.promise(promise{sessionID, refusedLink + thief, nil})
		}
	}
}

const refusedLink = "the attempt of "

// turn holds the log to what an answer shows of a turn. What is known of a turn stays, and so do sequences.
func (l *lives) turn(x services.Turn, err error) {
	if err != nil {
		return
	}
	l.promise(promise{x.SessionID, fmt.Sprintf("turn %s %s", x.RequestID, x.Status), func(st *session.State) bool {
		t := st.Turn(x.ID)
		return t != nil && t.Started == x.Started && (x.Final == 0 || t.Final == x.Final) && (x.Redacted == 0 ||
			t.Redacted == x.Redacted) &&
			(x.ReplacedBy == uuid.Nil || t.ReplacedBy == x.ReplacedBy) && (x.IdentityID == "" ||
			st.Identity == x.IdentityID) && st.Applied >= x.Position.Seq
	}})
}

func (l *lives) head(x services.Session, err error) {
	if err != nil {
		return
	}
	l.promise(promise{x.SessionID, "session", func(st *session.State) bool {
		return st.Applied >= x.Position.Seq && st.ResetAt >= x.ResetAt && (x.Identity == "" ||
			st.Identity == x.Identity && st.LinkedAt == x.LinkedAt)
	}})
}

// promise takes note of what was answered before the cut.
func (l *lives) promise(p promise) {
	if l.off() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised = append(l.promised, p)
	l.answers++
}

// check holds the log to all answers. Sequences stay what they were, since no answered event is lost.
func (l *lives) check(ctx context.Context, log *jetlog.Log) error {
	states, attempts := map[string]*session.State{}, map[string]bool{}
	for n := range 2 * cutSessions {
		id := fmt.Sprint("s", n)
		if n >= cutSessions {
			id = fmt.Sprint("whole-s", n-cutSessions)
		}
		st := session.New(id, session.Rules{SessionTTL: 24 * time.Hour})
		for e, err := range log.Session(ctx, id, 0, 1<<62) {
			if err != nil {
				return err
			}
			st.Fold(e)
			if f, is := e.Fact.(*events.LinkRefused); is {
				attempts[refusedLink+f.IdentityID] = true
			}
		}
		states[id] = st
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.promised {
		if p.kept == nil && !attempts[p.what] || p.kept != nil && !p.kept(states[p.session]) {
			return fmt.Errorf("%w: %s of %s, of %d answers", errAnswerLost, p.what, p.session, len(l.promised))
		}
	}
	return nil
}
