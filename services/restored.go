package services

import "errors"

// Restored counts what was restored from a backup.
type Restored struct {
	Partitions int `json:"partitions"`
	Erasures   struct {
		// Applied counts erasures that were recorded again.
		Applied int `json:"applied"`
		// Unknown counts erasures of sessions and identities that are not in the backup.
		Unknown int `json:"unknown"`
	} `json:"erasures"`
}

// ErrBackup says that the sent data is no backup, or is damaged. Its text may be shown.
var ErrBackup = errors.New("what was sent is not a whole backup")
