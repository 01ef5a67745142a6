// Package stack runs Turnledger as its users do: processes of one binary, which are called over HTTP and on the command
// line. The tests of systemtest use nothing else of it.
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
