// Package backup keeps copies of the log. It takes them from a server, piece by piece, into a folder or an S3 store,
// checks them by their checksums, and packs them for a server to restore.
//
// A backup exists once it has a manifest. The manifest is written last, so an unfinished backup is never taken for a
// whole one. A backup holds only the log, the dead letters and the key of the ids of items.
//
// Views are rebuilt from the log, and receipts are in it. Side effects start without their checkpoints, and look at
// every event again. Keys of callers are the operator's own file.
package backup
