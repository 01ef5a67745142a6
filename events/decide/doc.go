// Package decide says what a command wants to append to the log: each command is decided on the State of its session,
// without clock or I/O.
package decide
