package systemtest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/cutfs"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// No position that a client names, in whatever parameter, header, member or id, makes the server acknowledge a write
// before its fsync. Every call names positions that the log does not hold yet. After each, a write is on the disk when
// it is acknowledged, and in the end the power is cut.
func TestReadsBeyondTheHeadLoseNoWrite(t *testing.T) {
	t.Parallel()
	b := serveBeyond(t)
	known := b.record(t, "first")
	b.ask(callsOf(b, known), func(call int) (out []string) {
		for n, beyond := range []uint64{1, 1000, 1 << 40, math.MaxUint64} {
			for k, form := range b.forms(known, beyond) {
				if stack.Long() || (call+k)%4 == n { // each call in every form, and each distance
					out = append(out, form)
				}
			}
		}
		return out
	})
	b.cut()
}

// An id that a client has from before a restore may name a position that the log has lost, and will give to another
// event.
func TestIDsOfALostTailLoseNoWrite(t *testing.T) {
	t.Parallel()
	former := stack.Serve(t, beyondEnv(t), beyondRoles...)
	old := &beyondTheHead{Process: former, t: t}
	known, backup := old.record(t, "kept"), filepath.Join(t.TempDir(), "b")
	former.Done(t, "backup", backup)
	old.lengthen()
	lost := old.record(t, "lost").all()
	former.Stop(t)

	b := serveBeyond(t)
	b.Done(t, "restore", backup)
	b.WaitReady(t)
	b.write("the first one after the restore.")
	b.ask(callsOf(b, known), func(int) []string { return lost })
	b.cut()
}

// beyondTheHead asks a process for positions that its log does not hold.
type beyondTheHead struct {
	*stack.Process
	t       *testing.T
	disk    *cutfs.FS
	written []string
	head    uint64
}

var beyondRoles = []string{"--roles", "api,context,recent,audit,eraser,chat"}

func beyondEnv(t *testing.T) []string {
	// The calls leave turns pending that nobody answers.
	return append(stack.NewModel(t).Env(), "TURNLEDGER_POSTGRES_URL="+pg.URL(t), "TURNLEDGER_ON_PENDING=reject")
}

// serveBeyond starts a process whose streams are on a disk that forgets what was not fsynced.
func serveBeyond(t *testing.T) *beyondTheHead {
	t.Helper()
	b := &beyondTheHead{t: t}
	b.Process = serveOn(t, func(dir string) (disk *cutfs.FS, err error) {
		b.disk, err = cutfs.Mount(dir, cutfs.Options{ReplacingRenameSyncsData: true}) // as ext4 does
		return b.disk, err
	})
	return b
}

// serveOn starts a process whose streams are on a disk. The store directory is not: on a file system that it does
// not know, the process would have the server sync each write by itself.
func serveOn(t *testing.T, mount func(dir string) (*cutfs.FS, error)) *stack.Process {
	t.Helper()
	dir := t.TempDir()
	streams := filepath.Join(dir, "nats", "jetstream")
	require.NoError(t, os.MkdirAll(streams, 0o700))
	disk, err := mount(streams)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, disk.Unmount()) })
	p := stack.Start(t, beyondEnv(t), append([]string{"serve", "--data-dir", dir}, beyondRoles...)...)
	require.NotContains(t, p.Log.String(), "not safe here", "the durability gate is at work")
	return p
}

// ask makes every call in its forms. Reads are asked all at once, and change nothing: the next write has the next
// position. After any other call a write follows at once, or the call's own writes would hide a mark that is only a
// little too high.
func (b *beyondTheHead) ask(calls []asking, forms func(call int) []string) {
	b.write("before the reads.")
	var all errgroup.Group
	all.SetLimit(32)
	for n, c := range calls {
		if c.reads {
			b.send(&all, c, forms(n))
		}
	}
	require.NoError(b.t, all.Wait())
	before := b.head
	b.write("after the reads.")
	require.Equal(b.t, before+1, b.head, "a read has written")
	for n, c := range calls {
		if !c.reads {
			var each errgroup.Group
			each.SetLimit(1)
			b.send(&each, c, forms(n))
			require.NoError(b.t, each.Wait())
			b.write("after " + c.method + " " + c.path + " " + c.body)
		}
	}
}

// send makes a call in each form.
func (b *beyondTheHead) send(all *errgroup.Group, c asking, forms []string) {
	for _, form := range forms {
		if !c.text || strings.Contains(form, ":") {
			all.Go(func() error { return c.send(b.t.Context(), b.URL, form) })
		}
	}
}

// send makes a call. Where a position or an id of ours was asked for, the answer is that there is none, or none yet.
func (c asking) send(ctx context.Context, server, form string) error {
	ctx, cancel := context.WithTimeout(ctx, hang.Limit)
	defer cancel()
	path := strings.ReplaceAll(c.path, "{x}", url.PathEscape(form))
	body := strings.ReplaceAll(c.body, "{x}", form)
	if n, err := strconv.ParseUint(form, 10, 64); err == nil {
		body = strings.ReplaceAll(body, `"{n}"`, fmt.Sprint(n))
	}
	req, err := http.NewRequestWithContext(ctx, c.method, server+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", c.contentType)
	for _, name := range c.headers {
		req.Header.Set(name, form)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.method, path, err)
	}
	return c.judge(resp.StatusCode, path+" "+body, string(answer))
}

// judge returns an error for an answer that a call must not get.
func (c asking) judge(status int, asked, answer string) error {
	switch says := func(what string) bool { return strings.Contains(answer, what) }; {
	case slices.Contains([]int{400, 404, 405, 409, 410, 422}, status), status < 300 && !c.exact:
		return nil
	case status != http.StatusServiceUnavailable:
	case says("position_not_reached"), says("does not hold the position"), // the latter in the console
		says("index_unavailable"), says("audit_unavailable"): // there is no index, and a restored log has no tables yet
		return nil
	}
	return fmt.Errorf("%s %s: %d %s", c.method, asked, status, answer)
}

// write records a start, which is on the disk when it is acknowledged.
func (b *beyondTheHead) write(text string) {
	b.t.Helper()
	text = fmt.Sprintf("%d: %s", len(b.written), strings.NewReplacer(`"`, "", "{", "", "}", "").Replace(text))
	out := b.Must(b.t, http.StatusCreated, http.MethodPost, "/v1/sessions/written/turns",
		map[string]any{"request_id": fmt.Sprint("r", len(b.written)), "question_neutral": text})
	require.True(b.t, bytes.Contains(b.logIn(b.disk.Synced()), []byte(text)), "acknowledged before its fsync: %q", text)
	_, err := fmt.Sscanf(out["position"].(string), "0:%d", &b.head)
	require.NoError(b.t, err)
	b.written = append(b.written, text)
}

// cut cuts the power, and draws twenty times which unsynced bytes survive. Each acknowledged text is there, and a
// server that is started on what is left reads it.
func (b *beyondTheHead) cut() {
	for seed := range int64(20) {
		left := b.disk.Cut(seed)
		log := b.logIn(left)
		for _, text := range b.written {
			require.True(b.t, bytes.Contains(log, []byte(text)), "%q is lost with seed %d", text, seed)
		}
		if seed == 0 || stack.Long() {
			b.comesBack(left)
		}
	}
}

// comesBack starts a process on what a cut has left.
func (b *beyondTheHead) comesBack(left *cutfs.Image) {
	p := serveOn(b.t, left.Mount)
	defer p.Kill(b.t)
	all := readEvents(b.t, p.URL, "session_id=written")
	for _, text := range b.written {
		require.Contains(b.t, all, text)
	}
}

// readEvents returns the lines of the events that a query selects.
func readEvents(t *testing.T, server, query string) string {
	t.Helper()
	resp, err := http.Get(server + "/v1/events?" + query)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(all)
}

// logIn returns the log's blocks of an image.
func (b *beyondTheHead) logIn(left *cutfs.Image) (blocks []byte) {
	b.t.Helper()
	for _, path := range left.Paths() {
		if strings.Contains(path, "/TURNS-0/msgs/") && strings.HasSuffix(path, ".blk") {
			block, err := left.ReadFile(path)
			require.NoError(b.t, err)
			blocks = append(blocks, block...)
		}
	}
	return blocks
}
