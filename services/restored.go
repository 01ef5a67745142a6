package services

import "errors"

// Restored counts of a backup that was taken in: Erasures that were said again, and those that concern what it does not
// hold.
type Restored struct{ Partitions, Erasures, Unknown int }

// ErrBackup says that what was sent is no backup, or is damaged. Its text may be shown.
var ErrBackup = errors.New("what was sent is not a whole backup")
