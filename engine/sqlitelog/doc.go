// Package sqlitelog stores the log of an engine without a cluster in a folder: entries in a SQLite
// database, each blob in a file, and a lock file.
//
// A folder has one shard and one owner. The lock file keeps other processes out. The epoch in the
// database rejects appends of an owner that has lost its lock, for example because the lock file
// was deleted. The folder must be on a local disk: locks and SQLite's shared memory do not work over
// NFS.
//
// The log is not a general store: entries are only appended at the end and removed at the beginning.
package sqlitelog
