// Package stack starts Turnledger as its users do, as processes of one binary, and asks it what they
// ask: over HTTP and on the command line. The tests of systemtest know nothing else of it.
//
//	func TestMain(m *testing.M) { stack.Main(m) }
//
//	func TestAnswerIsShown(t *testing.T) {
//		p := stack.Start(t, nil, "serve", "--data-dir", stack.DataDir(t))
//		p.RecordExchange(t, "session", 0)
//		…
//
// Processes, folders and servers end with the test that asked for them.
package stack
