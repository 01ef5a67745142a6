// Package console is the web console: pages in which people look at sessions, at the log behind them, and at the views.
// It is a surface of its own beside the native API. It reads through the same ports, and asks the same authenticator
// for each request, so a caller sees in the console what the API would answer to the same key.
package console
