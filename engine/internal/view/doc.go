// Package view stores the data that lists and searches of runs read: a SQLite file that follows
// the log with a small delay.
//
// The log is the source of truth, not the view. The view may be deleted at any time, and is then
// filled again from the snapshot and the log. [View.Cursor] says up to which entry of the log the
// view is complete. It changes only in the transaction that writes the rows. A file that can't be
// used is replaced and not repaired.
//
// To make writes cheap, most writes change one table and one index. Two choices make that
// possible. The place of a run, which is its rowid, is computed from the time and the random part
// of its id: so there is no index by id, and the table is ordered by creation. And words are
// indexed later, by [View.Index], for thousands of runs at once.
//
// The package does not interpret the states of runs: they are only names to it.
package view
