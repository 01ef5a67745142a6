package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/turnledger/turnledger/"

// layer of a package: imports point from a higher one to a lower one only.
func layer(pkg string) int {
	top, _, _ := strings.Cut(strings.TrimPrefix(pkg, module), "/")
	return map[string]int{"events": 1, "projections": 2, "services": 3, "cmd": 4, "deploy": 4, "docs": 4}[top]
}

// sibling names the group in which packages may not import each other. The nouns in services itself belong to none, nor
// do the scopes and callers in services/access, which transports ask for and authenticators return, nor what puts the
// services together for tests.
func sibling(pkg string) string {
	if pkg == module+"services/access" {
		return ""
	}
	parts := strings.Split(strings.TrimPrefix(pkg, module), "/")
	if strings.TrimPrefix(pkg, module) == "services/servicetest" {
		return ""
	}
	if len(parts) > 1 && (parts[0] == "services" || parts[0] == "projections" &&
		(parts[1] == "recent" || parts[1] == "audit")) {
		return parts[0] + "/" + parts[1]
	}
	return ""
}

// events ← projections ← services ← cmd, and siblings never import each other.
func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,IgnoredGoFiles",
		"../../...").Output()
	require.NoError(t, err)
	dec := json.NewDecoder(strings.NewReader(string(out)))
	packages := 0
	for {
		var p struct {
			ImportPath     string
			Imports        []string
			IgnoredGoFiles []string
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		packages++
		// A name such as prompt_windows_test.go is that of another system's file: its tests would never run.
		for _, f := range p.IgnoredGoFiles {
			require.NotContains(t, f, "_test.go", p.ImportPath)
		}
		for _, dep := range p.Imports {
			if !strings.HasPrefix(dep, module) {
				continue
			}
			require.GreaterOrEqual(t, layer(p.ImportPath), layer(dep), "%s imports %s", p.ImportPath, dep)
			if a, b := sibling(p.ImportPath), sibling(dep); a != "" && b != "" && layer(dep) == layer(p.ImportPath) {
				require.Equal(t, a, b, "%s imports its sibling %s", p.ImportPath, dep)
			}
		}
	}
	require.Greater(t, packages, 15)
}
