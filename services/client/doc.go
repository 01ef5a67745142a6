// Package client is Turnledger for Go programs: the three ports of a conversation
// history as small interfaces (ports.go), and a Client over HTTP that is all three.
//
// Whatever has a request id, or may be said twice, is tried again when the
// connection breaks or the server asks for patience: the log makes one turn of it,
// however often it is sent. Nothing else is ever sent twice.
package client
