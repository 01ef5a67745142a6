package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/term"

	"github.com/turnledger/turnledger/services/client"
)

type chatCmd struct {
	Thread string `arg:"" optional:"" help:"The thread to join; a new one by default."`
	User   string `help:"The identity that speaks."`
	Last   count  `help:"How many questions and answers are shown of a thread that is joined." default:"5"`
	remote

	in io.Reader // the standard input by default
}

// Words of a line that are no message.
const (
	stopLine  = "/stop"
	leaveLine = "/leave"
)

// Run holds a conversation, a line a message, until the input ends or a line says /leave. Whoever leaves in the middle
// of an answer finds it when he comes back: it is made all the same.
func (c *chatCmd) Run(e *Env) error {
	joins := c.Thread != ""
	if !joins {
		c.Thread = uuid.NewString()
	}
	e.printErr("thread %s; a line is a message, %s ends an answer, %s or Ctrl-D leaves", c.Thread, stopLine, leaveLine)
	t := &talk{Env: e, thread: c.Thread, user: c.User, json: c.JSON}
	if c.in == nil {
		c.in, t.terminal = os.Stdin, term.IsTerminal(int(os.Stdin.Fd()))
	}
	t.lines = linesOf(e.Ctx, c.in)
	err := c.dial(firstTries, func(s *client.Client) error {
		t.client = s
		if joins {
			if err := t.join(int(c.Last)); err != nil {
				return c.explain(e.Ctx, err)
			}
		}
		return c.explain(e.Ctx, t.run())
	})
	if e.Ctx.Err() != nil {
		e.printErr("\nleft; come back with: turnledger chat %s", c.Thread)
		return nil
	}
	return err
}

// talk is a conversation.
type talk struct {
	*Env

	client       *client.Client
	thread, user string
	json         bool
	terminal     bool
	lines        <-chan string
	// waiting are lines that came while an answer was shown.
	waiting []string
	over    bool
}

// linesOf returns the lines of an input; the channel is closed at its end.
func linesOf(ctx context.Context, from io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewReader(from); ; {
			line, err := in.ReadString('\n')
			if line = strings.TrimSpace(line); line != "" {
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// join shows what was said last, and the answer that is being made.
func (t *talk) join(last int) error {
	pairs, err := t.client.History(t.Ctx, t.thread, last)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if !t.json {
			t.print("> %s\n%s", p.QuestionNeutral, p.AnswerNeutral)
		}
	}
	err = t.show(t.client.Attach(t.Ctx, t.thread, "", 0))
	if errors.Is(err, client.ErrNotRunning) {
		return nil
	}
	return err
}

// run sends each line, and shows its answer.
func (t *talk) run() error {
	for {
		line, more := t.next()
		if !more || line == leaveLine {
			return nil
		}
		if line == stopLine {
			continue // nothing runs
		}
		err := t.show(t.client.Chat(t.Ctx, client.ChatMessage{ThreadID: t.thread, UserID: t.user, Content: line}))
		if failed, is := errors.AsType[*client.Error](err); is && failed.Code == "model_failed" {
			t.printErr("%s", failed.Error()) // the question stands, and the conversation goes on
			continue
		}
		if err != nil || t.over {
			return err
		}
	}
}

// next returns the next line.
func (t *talk) next() (string, bool) {
	if len(t.waiting) > 0 {
		line := t.waiting[0]
		t.waiting = t.waiting[1:]
		return line, true
	}
	if t.terminal {
		_, _ = fmt.Fprint(t.Err, "> ")
	}
	select {
	case line, more := <-t.lines:
		return line, more
	case <-t.Ctx.Done():
		return "", false
	}
}

// told is an event of an answer, or the error at its end.
type told struct {
	client.AnswerEvent
	err error
}

// show prints an answer while it comes. A line that says /stop ends it, and one that says /leave leaves it; other lines
// wait.
func (t *talk) show(answer iter.Seq2[client.AnswerEvent, error]) error {
	ctx, end := context.WithCancel(t.Ctx)
	defer end()
	events := make(chan told)
	go func() {
		defer close(events)
		for e, err := range answer {
			select {
			case events <- told{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	lines := t.lines
	for begun := false; ; {
		select {
		case line, more := <-lines:
			switch {
			case !more:
				lines = nil // the answer is still shown
			case line == stopLine:
				if _, err := t.client.Stop(t.Ctx, t.thread, ""); err != nil {
					return err
				}
			case line == leaveLine:
				t.over = true
				return nil
			default:
				t.waiting = append(t.waiting, line)
			}
		case e, more := <-events:
			if !more || e.err != nil {
				if begun {
					_, _ = fmt.Fprintln(t.Out)
				}
				return e.err
			}
			begun = t.tell(e.AnswerEvent) || begun
		}
	}
}

// tell prints what is new of an answer, and reports whether the line goes on.
func (t *talk) tell(e client.AnswerEvent) (goesOn bool) {
	if t.json {
		if e.Done != nil {
			_ = t.printJSON(e.Done)
		}
		return false
	}
	if e.Anew {
		_, _ = fmt.Fprintln(t.Out, "\n[the answer begins anew]")
	}
	_, _ = fmt.Fprint(t.Out, Shown(e.Text))
	if e.Done != nil && e.Done.FinishReason != "stop" && e.Done.FinishReason != "" {
		_, _ = fmt.Fprintf(t.Out, " [%s]", e.Done.FinishReason)
	}
	return true
}
