// Package backup keeps copies of the log: it takes them from a server, piece by piece, into a folder or a store that
// speaks S3, checks them by their sums, and packs them for a server to restore.
//
// A backup is its manifest: that is written last, so that what was broken off is never
// taken for one. It holds the log and nothing else. Views are rebuilt from it, receipts are
// in it, what side effects remember is made anew (so that they look at everything again),
// and keys are the operator's own file.
package backup
