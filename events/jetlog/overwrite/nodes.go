package overwrite

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// Node is a server that holds a part of the log.
type Node struct {
	// ID is that of its process, which a server draws anew when it starts; "" if it did not answer.
	ID string
	// Behind: it does not run, or has yet to get what the leader has.
	Behind bool
}

// Question is one that each server of a cluster answers to every account: who is connected to it? All that counts is
// who answers.
const Question = "$SYS.REQ.SERVER.PING.CONNZ"

// Nodes returns the servers that hold the log, by their names.
func (l *Log) Nodes(ctx context.Context) (map[string]Node, error) {
	ctx, cancel := context.WithTimeout(ctx, l.inside.Deadline)
	defer cancel()
	out, silent := map[string]Node{}, map[string]bool{}
	for k := range l.log.Partitions() {
		stream := events.StreamName(k)
		var info struct {
			Cluster *jetstream.ClusterInfo `json:"cluster"`
			Error   *jetstream.APIError    `json:"error"`
		}
		err := l.inside.Wire.Ask(ctx, "STREAM.INFO."+stream, nil, &info)
		if err == nil && info.Error != nil {
			err = info.Error
		}
		if err != nil {
			return nil, jetlog.Unavailable("ask who holds "+stream, err)
		}
		if info.Cluster == nil { // a single server, which holds all
			silent[l.inside.Wire.NC.ConnectedServerName()] = true
			break
		}
		silent[cmp.Or(info.Cluster.Leader, l.inside.Wire.NC.ConnectedServerName())] = true
		for _, r := range info.Cluster.Replicas {
			out[r.Name] = Node{Behind: out[r.Name].Behind || !r.Current || r.Offline || r.Lag > 0}
			if !r.Offline {
				silent[r.Name] = true
			}
		}
	}
	return out, l.identify(ctx, out, silent)
}

// identify fills in the ids of servers that are silent so far, if they answer in time.
func (l *Log) identify(ctx context.Context, out map[string]Node, silent map[string]bool) error {
	heard := func(name, id string) {
		if silent[name] {
			out[name] = Node{id, out[name].Behind}
			delete(silent, name)
		}
	}
	heard(l.inside.Wire.NC.ConnectedServerName(), l.inside.Wire.NC.ConnectedServerId())
	for name := range silent {
		out[name] = Node{Behind: out[name].Behind}
	}
	if len(silent) == 0 {
		return nil
	}
	address, answers, done, err := l.inside.Wire.Box(answersAtOnce)
	if err != nil {
		return err
	}
	defer done()
	if err := l.inside.Wire.NC.PublishRequest(Question, address, []byte(`{"limit":1}`)); err != nil {
		return jetlog.Unavailable("ask the servers who they are", err)
	}
	brief, cancel := context.WithTimeout(ctx, wire.ReadDeadline)
	defer cancel()
	for len(silent) > 0 {
		m, err := l.inside.Wire.Next(brief, answers)
		if err != nil {
			return ctx.Err() // the others do not answer
		}
		var is struct {
			Server struct{ Name, ID string } `json:"server"`
		}
		if json.Unmarshal(m.Data, &is) == nil {
			heard(is.Server.Name, is.Server.ID)
		}
	}
	return nil
}

// answersAtOnce is more than a cluster has servers.
const answersAtOnce = 256

// Scrubbed returns the id of the process as which a node was started after a scrub; "" if it never was.
func Scrubbed(ctx context.Context, notes *jetlog.Notes, node string) (id string, err error) {
	_, err = notes.Read(ctx, scrubbedKey(node), &id)
	return id, err
}

// NoteScrubbed notes that a node, as the process with an id, was started after a scrub of its store directory.
func NoteScrubbed(ctx context.Context, notes *jetlog.Notes, node, id string) error {
	return notes.Put(ctx, scrubbedKey(node), id)
}

func scrubbedKey(node string) string {
	return "scrubbed." + base64.RawURLEncoding.EncodeToString([]byte(node))
}
