// Package memory keeps the recent-turns view in the process: for a process that does everything, and for processes that
// serve reads without a Redis.
//
// Nothing is stored. A new process has no checkpoint, so its runner begins at the first event since now − TTL. Sessions
// that began before that are held in part, and are not Whole.
package memory
