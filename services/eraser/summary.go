package eraser

import (
	"context"
	"maps"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// eraseSummaries erases the summaries of a session that don't stand now. A summary changes nothing else in the fold of
// its session, so that it can always go.
func (e *Eraser) eraseSummaries(ctx context.Context, j *job) (remainder, error) {
	state := conversation.New(j.session, e.cfg.Rules)
	void := map[uint64]bool{}
	for r, err := range e.log.Session(ctx, j.session, 0, maxSeq) {
		if err != nil {
			return remainder{}, err
		}
		state.Fold(r)
		if r.Type == events.TypeSessionSummarized {
			void[r.Position.Seq] = true
		}
	}
	for _, m := range state.Standing() {
		delete(void, m.At)
	}
	if len(void) > 0 {
		if err := e.overwrite(ctx, j.session, j.at, slices.Sorted(maps.Keys(void))); err != nil {
			return remainder{}, err
		}
	}
	return remainder{}, e.eraseMirrored(ctx, j.session, j.at)
}
