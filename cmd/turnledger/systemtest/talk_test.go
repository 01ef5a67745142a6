package systemtest_test

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// talking is a run of turnledger chat.
type talking struct {
	t        *testing.T
	cmd      *exec.Cmd
	in       io.WriteCloser
	out, err *printed.Buffer
}

func talkTo(t *testing.T, p *stack.Process, args ...string) *talking {
	t.Helper()
	c := &talking{t: t, out: &printed.Buffer{}, err: &printed.Buffer{}}
	c.cmd = exec.CommandContext(t.Context(), stack.Binary(t), append([]string{"chat", "--url", p.URL}, args...)...)
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.err
	c.in = must.Get(c.cmd.StdinPipe())(t)
	require.NoError(t, c.cmd.Start())
	return c
}

func (c *talking) says(line string) {
	c.t.Helper()
	must.Get(io.WriteString(c.in, line+"\n"))(c.t)
}

func (c *talking) sees(text string) {
	c.t.Helper()
	hang.Until(c.t, func() bool { return strings.Contains(c.out.String(), text) })
}

func (c *talking) ends() {
	c.t.Helper()
	_ = c.in.Close()
	require.NoError(c.t, c.cmd.Wait(), c.err.String())
}

// A conversation in the terminal is left in the middle of an answer, by Ctrl-C or by a word, and joined again, where
// the answer comes from its beginning; it is stopped, and read from a pipe.
func TestAConversationInTheTerminal(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	p := stack.Serve(t, model.Env(), "--roles", "api,context,recent,chat")
	release := model.Hold()
	first := talkTo(t, p)
	first.says("slowly: who is Donald Trump?")
	first.sees("Donald ")
	_, thread, _ := strings.Cut(first.err.String(), "thread ")
	thread, _, _ = strings.Cut(thread, ";")
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGINT))
	first.ends()
	require.Contains(t, first.err.String(), "turnledger chat "+thread)

	second := talkTo(t, p, thread)
	second.sees("Donald ")
	second.says("/leave")
	second.ends()

	third := talkTo(t, p, thread)
	third.sees("Donald ")
	third.says("who are his children?")
	release()
	third.sees("Donald Trump is an American politician.\n")
	third.sees("Barron.\n")
	third.ends()
	require.Equal(t, 1, strings.Count(third.out.String(), "American politician"))

	model.Hold()
	fourth := talkTo(t, p, thread)
	fourth.sees("Barron.\n")
	require.Contains(t, fourth.out.String(), "> who are his children?\n")
	fourth.says("slowly: who is Donald Trump?")
	hang.Until(t, func() bool { return strings.HasSuffix(fourth.out.String(), "Donald ") })
	fourth.says("/stop")
	fourth.sees("Donald  [stopped]\n")
	fourth.ends()

	lines := exec.CommandContext(t.Context(), stack.Binary(t), "chat", "--url", p.URL, "--json")
	lines.Stdin = strings.NewReader("who is Donald Trump?\nthis will fail\nwho are his children?")
	var failed bytes.Buffer
	lines.Stderr = &failed
	out := must.Get(lines.Output())(t)
	require.Contains(t, failed.String(), "model_failed")
	replies := 0
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if strings.Contains(s.Text(), `"content"`) {
			replies++
		}
	}
	require.Equal(t, 2, replies)
}
