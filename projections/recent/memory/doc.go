// Package memory keeps the recent-turns view in the process: for one process that
// does everything, and for each that serves reads where there is no Redis.
//
// Nothing is stored. A new process has no checkpoint, and its runner begins where
// the TTL does: at the first event since now − TTL. Sessions that began before are
// held in part, and say so. Reads share the questions and answers that the view
// holds; nobody may change them.
package memory
