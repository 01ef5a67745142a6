package eraser

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/jetlog"
)

// leftTurns notes turns of a session whose events leave the log, while responses of theirs may still be asked for. The
// notes go with the session.
type leftTurns struct {
	eraser  *Eraser
	session string
	noted   map[uuid.UUID]bool
	// looked: erased says whether the session is erased, so that no note of it would go any more.
	looked, erased bool
}

func (l *leftTurns) note(ctx context.Context, turn uuid.UUID) error {
	if !l.looked {
		s, err := state(ctx, l.eraser.log, l.eraser.cfg.Rules, l.session)
		if err != nil {
			return err
		}
		l.looked, l.erased = true, s.Erased != 0
	}
	if l.erased || l.noted[turn] {
		return nil
	}
	l.noted[turn] = true
	return l.eraser.notes.Put(ctx, leftKey(l.session, turn.String()), l.session)
}

// leftKey returns the key of the note of a session's turn; either may be "*".
func leftKey(session, turn string) string {
	if session != "*" {
		session = base64.RawURLEncoding.EncodeToString([]byte(session))
	}
	return "pruned." + session + "." + turn
}

// dropLeft drops the notes of a session's turns.
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
// have left the log; or "". The eraser notes it before they do, and of pruned turns again after the log was restored:
// ids of responses name the turn and a position, and no session. The note goes when the session does.
func SessionOfErased(ctx context.Context, notes *jetlog.Notes, turn uuid.UUID) (session string, err error) {
	err = jetlog.EachNote(ctx, notes, leftKey("*", turn.String()), func(n jetlog.Note[string]) { session = n.Value })
	return session, err
}
