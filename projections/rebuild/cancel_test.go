package rebuild_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
)

// tooLate swaps though the rebuild is cancelled meanwhile.
type tooLate struct {
	projections.Generation
	swapping chan struct{}
}

func (g tooLate) Swap(ctx context.Context, check projections.SwapCheck) error {
	close(g.swapping)
	<-ctx.Done()
	return g.Generation.Swap(context.WithoutCancel(ctx), check)
}

// Who breaks a rebuild off hears what became of it, not that it was asked to end.
func TestACancelThatComesTooLateSaysSo(t *testing.T) {
	t.Parallel()
	log, v, _ := fed(t, openMemory, 1, 2, 4)
	before, swapping := number(t, v), make(chan struct{})
	late := func(g projections.Generation) projections.Generation { return tooLate{g, swapping} }
	r := must.Get(begin(t.Context(), log, breakable{v, late}, 100))(t)
	ran := make(chan error, 1)
	go func() { ran <- r.Run(t.Context()) }()
	<-swapping
	cancelled := must.Get(r.Cancel(t.Context()))(t)
	require.False(t, cancelled)
	require.NoError(t, <-ran)
	require.Equal(t, before+1, number(t, v))
	cancelled = must.Get(r.Cancel(t.Context()))(t)
	require.False(t, cancelled)
}
