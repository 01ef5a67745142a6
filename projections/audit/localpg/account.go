package localpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the operating system's user under which PostgreSQL runs.
type account struct {
	uid, gid int
	name     string
	drop     bool // we are root and it is not
}

// accountFor chooses the account. If this process is not root, it is our own. For root it is the owner of an existing
// cluster (so that the cluster stays usable for the user who made it), else postgres, else nobody.
func accountFor(cluster string) (account, error) {
	owner, exists, err := ownerOf(cluster)
	if err != nil {
		return account{}, err
	}
	self := os.Geteuid()
	if self != 0 {
		if exists && owner != self {
			return account{}, fmt.Errorf("%w: %s belongs to uid %d; run as that user, or as root", ErrForeignCluster,
				cluster, owner)
		}
		return lookupAccount(user.LookupId, strconv.Itoa(self))
	}
	if exists && owner != 0 {
		return lookupAccount(user.LookupId, strconv.Itoa(owner))
	}
	if a, err := lookupAccount(user.Lookup, "postgres"); err == nil {
		return a, nil
	}
	return lookupAccount(user.Lookup, "nobody")
}

func lookupAccount(lookup func(string) (*user.User, error), key string) (account, error) {
	u, err := lookup(key)
	if err != nil {
		// PostgreSQL itself asks for the name of its user and gives up without one.
		return account{}, fmt.Errorf("find the account %s for PostgreSQL (it needs one with a name): %w", key, err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return account{}, fmt.Errorf("read the account %s: %w", key, err)
	}
	return account{uid: uid, gid: gid, name: u.Username, drop: os.Geteuid() == 0 && uid != 0}, nil
}

func ownerOf(path string) (uid int, exists bool, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look at %s: %w", path, err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), true, nil
}

// own makes the account the owner of a file or folder, if the account is not our own.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}
