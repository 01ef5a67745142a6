package services

import "errors"

// Restored counts of a backup that was taken in.
type Restored struct {
	Partitions int `json:"partitions"`
	Erasures   struct {
		// Applied are erasures that were written again.
		Applied int `json:"applied"`
		// Unknown counts erasures of sessions and identities that the backup does not hold.
		Unknown int `json:"unknown"`
	} `json:"erasures"`
}

// ErrBackup says that what was sent is no backup, or is damaged. Its text may be shown.
var ErrBackup = errors.New("what was sent is not a whole backup")
