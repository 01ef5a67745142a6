// Package redis keeps the recent-turns view in a Redis, shared by all processes.
//
// Per session: a sorted set of its turns, scored by their place in the log (pending
// ones too, so that the cap and a window are one range each), and a hash with the
// head, the sequence last applied and the number of turns. Both expire by
// themselves, the TTL after the last activity by recorded time. A batch is one Lua
// script that also moves the checkpoint; a read is one script. Redis knows nothing of
// what a turn holds: texts go in and come out byte for byte.
//
// Keys, all in one slot of a cluster:
//
//	turnledger:{<prefix>}:gen                 the generation that is served; 1 if missing
//	turnledger:{<prefix>}:next                the generation that a rebuild fills
//	turnledger:{<prefix>}:last                the newest generation's number
//	turnledger:{<prefix>}:g<n>:cp:<partition> checkpoint of a partition
//	turnledger:{<prefix>}:g<n>:h:<session>    head of a session
//	turnledger:{<prefix>}:g<n>:t:<session>    its turns
//	turnledger:{<prefix>}:store               the id that the store has given itself
//
// An empty or flushed Redis is never read as no history: what is not there is asked
// of the log, a session whose turns don't number what its head says is not there,
// and neither is anything that was written under a checkpoint that is gone. A Redis
// that evicts keys is refused all the same, since it would lose sessions silently
// and make each of their reads one of the log. The policy is looked at when a
// partition is claimed, not later.
package redis
