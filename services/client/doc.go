// Package client is the Go client of Turnledger: the three ports of a conversation history as small interfaces
// (ports.go), and a Client over HTTP that implements all three.
//
// A call that has a request id, or may be repeated safely, is tried again when the connection breaks or the server asks
// the client to wait. The log makes one turn of it, however often it is sent. No other call is sent twice.
package client
