package eraser

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
)

// leftTurns notes a session, and turns of it, whose events leave the log, while items and responses of theirs may still
// be asked for. The notes go with the session.
type leftTurns struct {
	eraser  *Eraser
	session string
	noted   map[string]bool
	// looked: erased says whether the session is erased, so that no note of it would go any more.
	looked, erased bool
}

// noteAll notes the session of turns that are gone or pruned, and those that are pruned.
func (l *leftTurns) noteAll(ctx context.Context, s *session.State, gone map[uuid.UUID]uint64) error {
	for turn := range gone {
		err := l.note(ctx, events.SessionDigest(l.session))
		if err == nil && s.Turn(turn).Redacted == 0 {
			err = l.note(ctx, turn.String())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// note notes the session under the id of a turn, or its own digest.
func (l *leftTurns) note(ctx context.Context, name string) error {
	if !l.looked {
		s, err := state(ctx, l.eraser.log, l.eraser.cfg.Rules, l.session)
		if err != nil {
			return err
		}
		l.looked, l.erased = true, s.Erased != 0
	}
	if l.erased || l.noted[name] {
		return nil
	}
	l.noted[name] = true
	return l.eraser.notes.Put(ctx, leftKey(l.session, name), l.session)
}

// leftKey returns the key of the note of a session under a name; either may be "*".
func leftKey(session, name string) string {
	if session != "*" {
		session = base64.RawURLEncoding.EncodeToString([]byte(session))
	}
	return "pruned." + session + "." + name
}

// dropLeft drops the notes of a session.
func dropLeft(ctx context.Context, notes *jetlog.Notes, session string) error {
	var keys []string
	err := notes.Each(ctx, leftKey(session, "*"), func(n jetlog.Note[json.RawMessage]) error {
		keys = append(keys, n.Key)
		return nil
	})
	for _, key := range keys {
		if err == nil {
			err = notes.Drop(ctx, key)
		}
	}
	return err
}

// SessionOfErased returns the session of a turn that was pruned, or redacted with a response in it, and whose events
// have left the log, by the turn's id; or the session that lost any, by its digest; or "". The eraser notes it before
// they leave, and after the log was restored again: ids of responses name the turn and a position, those of items a
// position and the digest, and no session. The note goes when the session does.
func SessionOfErased(ctx context.Context, notes *jetlog.Notes, name string) (session string, err error) {
	err = jetlog.EachNote(ctx, notes, leftKey("*", name), func(n jetlog.Note[string]) { session = n.Value })
	return session, err
}
