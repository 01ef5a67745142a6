package read_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

//conformance:i7 i20 i23 i53
func TestTheReadSideCantImportAWriter(t *testing.T) {
	t.Parallel()
	out := must.Get(exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "../contextbuilder").Output())(t)
	for dep := range strings.FieldsSeq(string(out)) {
		require.NotContains(t, dep, "turnledger/services/write")
		require.NotContains(t, dep, "turnledger/events/jetlog")
	}
}
