// Package cutfs is a file system with a volatile write cache whose power can be cut. A test puts a database's
// directory on it, cuts the power, mounts the surviving image, and checks that everything promised is there.
//
// It lives in memory and is mounted through FUSE, so the program under test does real system calls. A running program
// sees every change at once, as it sees the page cache. A change that the program has not fsynced may be gone after the
// cut: every unsynced write, truncation and directory operation is kept or lost by itself, drawn from a seed.
//
// # Files
//
// A file is a durable image plus the ordered list of writes and truncations that happened since. fsync, fdatasync, and
// each write through an O_SYNC or O_DSYNC descriptor apply the whole list to the durable image. They do so for the
// inode, whatever descriptor the changes came through. At the cut, each listed change is kept or lost independently,
// and the kept ones are applied in their order; a kept write after the end of a lost one leaves a hole of zeros. The
// last kept write of a file may be torn: cut at any byte, cut at a 512-byte sector, or with any of its sectors missing
// while the size has already grown.
//
// # Names
//
// A directory operation (create, mkdir, unlink, rmdir, rename) changes one or two names, atomically: after the cut a
// rename has happened in whole or not at all. fsync of a directory makes durable every earlier operation that changed a
// name in it. fsync of a file does not make its name durable, and fsync of a directory does not make the directory's
// own name in its parent durable: a durable file under a lost name is lost. That is POSIX read strictly; [Options]
// model kinder file systems.
//
// Operations are lost independently, but a cut never leaves a state that no file system could leave:
//
//   - Of the operations on one name, a later one survives only with all earlier ones. So if a create is
//     lost, the rename of that file is lost too. If a create that reuses a name survives, so does the unlink
//     before it.
//   - A rename into another directory survives only if the names of that directory and of those above it
//     are durable, or survive as well: a move never carries a file into nowhere, and no two moves can
//     build a loop.
//   - If a directory was removed or replaced, all operations inside it survive too, so it is really empty.
//
// If an operation is made durable, so are the operations that it depends on in this sense.
//
// # What is not modelled
//
// Mode and modification time always survive; modification times are coarse. There are no hard links, extended
// attributes or shared writable mappings. Nothing rots: fsynced data is there, bit for bit. Locks (flock,
// fcntl) are the kernel's own and end with the mount.
package cutfs
