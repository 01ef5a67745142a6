package localpg

import (
	"errors"
	"fmt"
)

var (
	// ErrNotInstalled says that no usable PostgreSQL was found. The error that Start returns is a *NotInstalledError.
	ErrNotInstalled = errors.New("PostgreSQL is not installed")
	// ErrInUse says that another live Server holds the data directory.
	ErrInUse = errors.New("the data directory is in use by another process")
	// ErrUnreachable says that the account PostgreSQL must run as cannot enter the data directory.
	ErrUnreachable = errors.New("PostgreSQL's account cannot enter the data directory")
	// ErrForeignCluster says that the cluster was made by another major version or belongs to another user.
	ErrForeignCluster = errors.New("the cluster cannot be used")
)

// NotInstalledError carries the one command that installs PostgreSQL here. It Is ErrNotInstalled.
type NotInstalledError struct {
	Command string // for example "sudo apt-get install -y postgresql"
	Found   string // what was found and is too old, or empty
}

func (e *NotInstalledError) Error() string {
	if e.Found != "" {
		return fmt.Sprintf("%v (found %s, need %d or newer): run `%s`", ErrNotInstalled, e.Found, minMajor, e.Command)
	}
	return fmt.Sprintf("%v: run `%s`", ErrNotInstalled, e.Command)
}

// Is makes errors.Is(err, ErrNotInstalled) true.
func (e *NotInstalledError) Is(target error) bool { return target == ErrNotInstalled }
