package eraser

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// replaceDescription takes the descriptions of a session out that stand before the one that counts now, whether or not
// they counted. It does nothing if the session would then fold to another state.
func (e *Eraser) replaceDescription(ctx context.Context, j *job) (remainder, error) {
	with, without := session.New(j.session, e.cfg.Rules), session.New(j.session, e.cfg.Rules)
	var older []uint64
	for r, err := range e.log.Session(ctx, j.session, 0, j.at.Seq) {
		if err != nil {
			return remainder{}, err
		}
		with.Fold(r)
		if r.Type == events.TypeSessionDescribed && r.Position != j.at {
			older = append(older, r.Position.Seq)
		} else {
			without.Fold(r)
		}
	}
	if !with.Same(without) {
		e.cfg.Logger.Error("a description does not carry what the session needs of those before it, and these stay in "+
			"the log; no view shows them. Describe the session again", "session_id", j.session, "position", j.at)
		return remainder{}, nil
	}
	if len(older) > 0 {
		if err := e.overwrite(ctx, j.session, j.at, older); err != nil {
			return remainder{}, err
		}
	}
	return remainder{}, e.eraseMirrored(ctx, j.session, j.at)
}
