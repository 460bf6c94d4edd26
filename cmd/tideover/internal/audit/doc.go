// Package audit keeps the trail of events on the disk: one line of JSON each, in
// a file that only its owner can read and that is put aside when it is large.
//
// A [Sink] never makes its caller wait. What it can't write in time it drops and
// counts, and the count is a line of the trail itself. It is not the truth about
// runs, which is the engine's log; it is what remains for whoever asks later.
package audit
