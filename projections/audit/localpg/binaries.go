package localpg

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// minMajor is the oldest supported PostgreSQL: 13 has DROP DATABASE … WITH (FORCE) and incremental sort, and is the
// oldest version in a supported distribution.
const minMajor = 13

// binaries is one installed PostgreSQL.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// installDirs are the places where distributions put the server's binaries; most keep them out of PATH.
var installDirs = []string{
	"/usr/lib/postgresql/*/bin",                      // Debian, Ubuntu
	"/usr/lib/postgresql*/bin",                       // openSUSE, Gentoo
	"/usr/pgsql-*/bin",                               // EL, from PGDG
	"/usr/libexec/postgresql*",                       // Alpine
	"/opt/homebrew/opt/postgresql*/bin",              // Homebrew on Apple silicon
	"/usr/local/opt/postgresql*/bin",                 // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin", // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/opt/local/lib/postgresql*/bin", // MacPorts
	"/usr/bin", "/usr/local/bin", "/usr/local/pgsql/bin",
}

// findBinaries returns the PostgreSQL to run: the major version want, or the newest if want is 0. If dir is set, it
// looks only there.
func findBinaries(ctx context.Context, dir string, want int) (binaries, error) {
	var best binaries
	var majors []string
	for _, d := range candidateDirs(dir) {
		major, err := majorOf(ctx, d)
		if err != nil {
			continue // a broken installation is skipped
		}
		majors = append(majors, strconv.Itoa(major))
		if major == want || want == 0 && major > best.major {
			best = binaries{dir: d, major: major}
		}
	}
	found := strings.Join(majors, ", ")
	switch {
	case want != 0 && best.major == 0 && found != "":
		return best, fmt.Errorf("%w: PostgreSQL %d made it and %s is installed", ErrForeignCluster, want, found)
	case best.major < minMajor:
		if found != "" {
			found = fmt.Sprintf(" (found %s, need %d or newer)", found, minMajor)
		}
		return best, fmt.Errorf("%w%s: run `%s`", ErrNotInstalled, found, installCommand())
	}
	return best, nil
}

// candidateDirs lists every directory that holds both postgres and initdb, with links resolved, each once. PATH comes
// first, so that it decides between equal versions.
func candidateDirs(only string) []string {
	dirs := []string{only}
	if only == "" {
		dirs = dirs[:0]
		if p, err := exec.LookPath("postgres"); err == nil {
			dirs = append(dirs, filepath.Dir(p))
		}
		for _, pattern := range installDirs {
			found, _ := filepath.Glob(pattern) // the only error is a bad pattern
			dirs = append(dirs, found...)
		}
	}
	var out []string
	seen := map[string]bool{}
	for _, d := range dirs {
		// initdb looks for postgres beside itself, so a folder of links can't be used directly.
		resolved, err := filepath.EvalSymlinks(filepath.Join(d, "postgres"))
		if err != nil {
			continue
		}
		resolved = filepath.Dir(resolved)
		if _, err := os.Stat(filepath.Join(resolved, "initdb")); err == nil && !seen[resolved] {
			seen[resolved] = true
			out = append(out, resolved)
		}
	}
	return out
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func majorOf(ctx context.Context, dir string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	//nolint:gosec // a fixed name in a known folder
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask %s for its version: %w", dir, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("ask %s for its version: unknown answer", dir)
	}
	return strconv.Atoi(string(m[1]))
}

// installCommand is the one command that installs PostgreSQL on this system.
func installCommand() string {
	if runtime.GOOS == "darwin" {
		return "brew install postgresql"
	}
	sudo := "sudo "
	if os.Geteuid() == 0 {
		sudo = ""
	}
	release, _ := os.ReadFile("/etc/os-release") // another system has none
	ids := string(bytes.Join(idLines.FindAll(release, -1), []byte(" ")))
	for _, known := range []struct{ id, command string }{
		{"fedora", "dnf install -y postgresql-server"},
		{"rhel", "dnf install -y postgresql-server"},
		{"suse", "zypper install -y postgresql-server"},
		{"alpine", "apk add postgresql"},
		{"arch", "pacman -S --noconfirm postgresql"},
	} {
		if strings.Contains(ids, known.id) {
			return sudo + known.command
		}
	}
	return sudo + "apt-get install -y postgresql"
}

// idLines are the lines of os-release that name the system, and those that it is like.
var idLines = regexp.MustCompile(`(?m)^ID(_LIKE)?=.*$`)
