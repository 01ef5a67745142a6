// Package follower reads each partition of the log once for a whole process (docs/design.md#the-follower).
//
// It has two stages. Stage 1 hands each event to the decider, which folds it into the sessions that it holds in memory;
// it never reads the log, so that no cold session stands before a writer's verdict. Stage 2 judges the events for the
// subscribers, and may read sessions from the log for that. Subscribers get durable events only.
//
// A subscriber that is behind (it starts, its store was down, it is slow) reads the log by itself, through the same
// code with a judge of its own, and joins the others at an exact position: it is given each event once.
package follower
