// Package view keeps what pages and commands read about runs: a SQLite file
// that is written behind the log.
//
// It is never the truth. It may be deleted at any time and is then filled again
// from the snapshot and the log; [View.Cursor] says how far it got, and moves
// only in the transaction that writes the rows. So a file that can't be used is
// put away and replaced instead of repaired.
//
// A write costs one table and one index. Two choices pay for that. A run's place
// in the table is computed from the time and the random part of its id, so that
// there is no index by id and the table is in order of creation. And words are
// indexed later, by [View.Index], because that takes four times as long as
// writing the run itself.
//
// It is not a queue and decides nothing: it knows no state of a run by name.
package view
