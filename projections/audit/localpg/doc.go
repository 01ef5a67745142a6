// Package localpg runs one private PostgreSQL from the binaries that are installed on this machine: for `turnledger
// dev`, and for tests.
//
// It makes the cluster once (UTF-8, C locale), listens on a unix socket only, and stops with the process that started
// it. There are no passwords: the kernel says which user a connection comes from (peer authentication). Below the data
// directory lie
//
//	cluster/     PostgreSQL's own data directory, 0700, owned by the account that PostgreSQL runs as
//	server.log   what PostgreSQL says; never a statement or a value
//	lock         held while a Server lives: one Server a data directory
//
// PostgreSQL refuses to run as root, so root starts it as the user `postgres`, else `nobody`; only cluster/ and the
// socket's directory belong to that user. The socket lies in a short directory of its own below /tmp, because a
// socket's path is limited to 107 bytes and the data directory's is not.
//
// Invariants:
//   - cluster/ is whole or absent: it is made under another name and renamed.
//   - No two PostgreSQL processes share a cluster: the lock keeps our own apart, and PostgreSQL's interlock
//     (postmaster.pid and the shared memory it names) is never bypassed, only pointed past a process number that was
//     reused.
//   - What an earlier process left behind (a server that outlived it, its socket, a half-made cluster) is removed at
//     Start.
//
// It refuses to manage anyone else's PostgreSQL, to upgrade a cluster from one major version to another, and to
// listen on a network.
package localpg
