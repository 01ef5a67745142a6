package jetlog

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
)

// api asks JetStream once, and waits for the answer until ctx ends.
func (l *Log) api(ctx context.Context, verb string, req, out any) error {
	body, err := asJSON(req)
	if err != nil {
		return err
	}
	reply, err := l.nc.RequestWithContext(ctx, "$JS.API."+verb, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply.Data, out)
}

// ask is api for what changes nothing: it asks again while there is no answer. A question
// that finds no leader is answered by nobody, not by the one that is elected a moment later
// either. The first answer counts, whichever time it is to.
func (l *Log) ask(ctx context.Context, verb string, req, out any) error {
	body, err := asJSON(req)
	if err != nil {
		return err
	}
	address, answers, done, err := l.replies.box(2 * int(readDeadline/askAgain))
	if err != nil {
		return err
	}
	defer done()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		if err := l.nc.PublishRequest("$JS.API."+verb, address, body); err != nil {
			return err
		}
		for waiting := true; waiting; {
			select {
			case m := <-answers:
				if !nobody(m) {
					return json.Unmarshal(m.Data, out)
				}
			case <-again.C:
				waiting = false
			case <-l.replies.gone:
				return nats.ErrConnectionClosed
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// askAgain is longer than an answer takes that has to be read from the disk.
const askAgain = readDeadline / 4

// nobody tells the server's word that nobody listens to a question.
func nobody(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

func asJSON(req any) ([]byte, error) {
	if req == nil {
		return nil, nil
	}
	return json.Marshal(req)
}
