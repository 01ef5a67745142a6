// Package gobuild builds a Go program that tests run as a process.
package gobuild

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Program is a Go program that tests run as a process. Safe for concurrent use.
type Program struct {
	Name    string // of the built file
	Package string
	Flags   []string // of go build

	once sync.Once
	dir  string
	err  error
}

// Path returns the program's file. The first call builds it.
func (p *Program) Path() (string, error) {
	p.once.Do(func() {
		if p.dir, p.err = os.MkdirTemp("", "turnledger-program-"); p.err != nil {
			return
		}
		args := append([]string{"build", "-o", p.file()}, append(p.Flags, p.Package)...)
		build := exec.Command("go", args...)
		if build.Dir, p.err = Product(); p.err != nil {
			return
		}
		if printed, err := build.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("build %s: %w\n%s", p.Package, err, printed)
		}
	})
	return p.file(), p.err
}

// Product returns the folder of the product's module. Tests of another module build with the product's versions, too.
func Product() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/turnledger/turnledger").Output()
	return strings.TrimSpace(string(dir)), err
}

func (p *Program) file() string { return filepath.Join(p.dir, p.Name) }

// Remove removes the built file, if there is one.
func (p *Program) Remove() {
	p.once.Do(func() {})
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}
