package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events/jetlog"
)

// Moment is the state of a stream when it was copied.
type Moment struct {
	First  uint64 `json:"first_seq"`
	Last   uint64 `json:"last_seq"`
	Events uint64 `json:"messages"`
	Bytes  uint64 `json:"bytes"`
}

const (
	chunkSize = 256 << 10
	// chunkDeadline is how long the server may take to send or to take one part of a copy.
	chunkDeadline = 30 * time.Second
)

// Snapshot writes a copy of a partition's stream, as it stands at one moment, while the log is in use. The copy has
// NATS's own form, in S2 frames. The server first checks the checksums of all events. Then Snapshot calls begin with
// the moment; begin returns the writer, which must take each part within seconds.
func (l *Log) Snapshot(ctx context.Context, partition int, begin func(Moment) (io.Writer, error)) error {
	p, err := l.inside.Partition(partition)
	if err != nil {
		return err
	}
	inbox := l.inside.Wire.NC.NewInbox()
	sub, err := l.inside.Wire.NC.SubscribeSync(inbox)
	if err != nil {
		return jetlog.Unavailable("copy "+p.Stream, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	var out struct {
		State Moment              `json:"state"`
		Error *jetstream.APIError `json:"error"`
	}
	// The larger the log, the longer the server takes to check all checksums, so only the caller's ctx bounds it.
	ask := map[string]any{"deliver_subject": inbox, "no_consumers": true, "jsck": true, "chunk_size": chunkSize}
	if err := l.inside.Wire.Call(ctx, "STREAM.SNAPSHOT."+p.Stream, ask, &out); err != nil {
		return jetlog.Unavailable("copy "+p.Stream, err)
	}
	if out.Error != nil {
		return jetlog.Unavailable("copy "+p.Stream, out.Error)
	}
	to, err := begin(out.State)
	if err != nil {
		return err
	}
	return copyParts(ctx, sub, p.Stream, to)
}

// copyParts writes the parts of a stream's copy as they arrive.
func copyParts(ctx context.Context, sub *nats.Subscription, stream string, to io.Writer) error {
	for part := 1; ; part++ {
		data, over, err := nextPart(ctx, sub, part)
		if err != nil {
			return jetlog.Unavailable("copy "+stream, err)
		}
		if over {
			return nil
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
}

var errPart = errors.New("a part of the copy was lost")

// nextPart returns the next part of a copy, or reports that the copy is over. The server numbers full parts and waits
// for an answer to each; the last part has no number and needs no answer.
func nextPart(ctx context.Context, sub *nats.Subscription, n int) (data []byte, over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, chunkDeadline)
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	switch {
	case err != nil:
		return nil, false, err
	case len(m.Data) == 0:
		if status := m.Header.Get("Status"); status != "" && status != "204" {
			return nil, false, fmt.Errorf("the server broke it off: %s %s", status, m.Header.Get("Description"))
		}
		return nil, true, nil
	case m.Reply == "":
		return m.Data, false, nil
	case m.Reply[strings.LastIndexByte(m.Reply, '.')+1:] != strconv.Itoa(n):
		return nil, false, errPart
	}
	return m.Data, false, m.Respond(nil)
}
