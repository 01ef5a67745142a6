//go:build race

package main

// raceFlags: the binary under test is built as the test is.
var raceFlags = []string{"-race"}
