package localpg

import "errors"

var (
	// ErrNotInstalled says that no usable PostgreSQL was found. The text of Start's error has the one command that
	// installs it here.
	ErrNotInstalled = errors.New("PostgreSQL is not installed")
	// ErrInUse says that another live Server holds the data directory.
	ErrInUse = errors.New("the data directory is in use by another process")
	// ErrForeignCluster says that the cluster was made by another major version or belongs to another user.
	ErrForeignCluster = errors.New("the cluster cannot be used")
)
