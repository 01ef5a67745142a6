// Package client is Turnledger for Go programs: the three ports of a conversation
// history as small interfaces (ports.go), and a Client over HTTP that is all three.
//
// A call that has a request id, or may be sent twice, is tried again when the
// connection breaks or the server asks for patience: the log makes one turn of it,
// however often it is sent. No other call is ever sent twice.
package client
