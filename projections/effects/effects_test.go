package effects_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/effects"
)

// A rebuild takes what is Rebuildable only, so that it never does again what an effect did outside.
func TestAnEffectIsNoViewThatCanBeRebuilt(t *testing.T) {
	t.Parallel()
	_, can := any((*effects.Effect)(nil)).(projections.Rebuildable)
	require.False(t, can)
	_, isView := any((*effects.Effect)(nil)).(projections.View)
	require.False(t, isView)
	_, fed := any((*effects.Effect)(nil)).(projections.Projection)
	require.True(t, fed)
}
