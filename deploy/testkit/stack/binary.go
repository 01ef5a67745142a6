package stack

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/gobuild"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
)

// binaryVariable names the binary that the tests run, which make builds once for all packages.
// Without it each test process builds its own.
const binaryVariable = "TURNLEDGER_TEST_BINARY"

// Main is a package's TestMain: it runs the tests, several at once, removes what they shared, and exits.
func Main(m *testing.M) {
	flag.Parse()
	if runtime.GOMAXPROCS(0) < leastParallel {
		_ = flag.Set("test.parallel", strconv.Itoa(leastParallel)) // the flag of package testing
	}
	os.Exit(Runner(m).Run())
}

// leastParallel is the least number of tests that run at once: they wait more than they compute.
const leastParallel = 5

// Runner wraps the tests so that their run ends with the removal of what they shared.
func Runner(tests interface{ Run() int }) interface{ Run() int } { return runner{tests} }

type runner struct{ tests interface{ Run() int } }

func (r runner) Run() int {
	defer built.Remove()
	defer stopShared()
	return pg.Runner(r.tests).Run()
}

// Binary returns the path of the binary.
func Binary(t testing.TB) string {
	t.Helper()
	path := must.Get(findBinary())(t)
	return path
}

var built = &gobuild.Program{Name: "turnledger", Package: "github.com/turnledger/turnledger/cmd/turnledger"}

// findBinary builds the binary, unless the variable names one. With the race detector a process needs three times the
// processor time, and all processes of a test wait for each other. So only the long forms build it with the detector.
var findBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", binaryVariable, err)
		}
		return path, nil
	}
	race := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && Long() && slices.Contains(info.Settings, race) {
		built.Flags = append(built.Flags, "-race")
	}
	return built.Path()
})

// environment returns the variables that the binary inherits: all but those for the tests.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "TURNLEDGER_TEST_") ||
			strings.HasPrefix(variable, "TURNLEDGER_TORTURE=") || strings.HasPrefix(variable, "TURNLEDGER_SEED=")
	})
}

// Long reports whether the long form of a test is asked for.
func Long() bool { return os.Getenv("TURNLEDGER_TORTURE") != "" }

// Seed returns the seed of TURNLEDGER_SEED, or a new one, and logs it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("TURNLEDGER_SEED"); text != "" {
		seed = must.Get(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("seed %d", seed)
	return seed
}
