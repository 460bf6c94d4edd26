// Package sqlitelog keeps the log of an embedded engine in a folder: a lock
// file, a table of a SQLite database, and a file for each blob.
//
// A folder has one shard and one owner. The lock file keeps a second process
// out; the epoch in the database refuses an owner whose lock was taken away
// from it, for example because the lock file was deleted. The folder must
// be on a local disk: locks and SQLite's shared memory do not work over NFS.
//
// It is not a queue and not a general store: entries are only appended at one
// end and cut off at the other.
package sqlitelog
