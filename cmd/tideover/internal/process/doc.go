// Package process runs one command, as often as it is told to, and leaves
// nothing of it behind.
//
// A [Supervisor] stands between a command and whoever started us. It gives each
// attempt a process group of its own, lends it the terminal when there is one,
// passes signals on, replays standard input, and after an attempt that failed
// it ends whatever the attempt left running. It knows nothing about retrying:
// whether to call [Supervisor.Run] again is the caller's business.
//
// # Processes
//
// Ending is always the same: TERM to the whole group, a grace, KILL. On Linux
// the process becomes a child subreaper, so that descendants that left the
// group (setsid, a double fork) come to it when their parents die; they are
// found, ended and reaped too. Elsewhere only the group is known. After a
// success nothing is ended, since a command may start a daemon on purpose.
//
// # The terminal
//
// When standard input is a terminal and we are in its foreground, the command's
// group is put there in our place, and taken out after the attempt; Ctrl-C
// and window changes then reach the command from the kernel, and Ctrl-Z stops
// both of us. When standard input is something else the command is put in the
// foreground only once it touches the terminal (ssh asking for a password),
// because in a pipeline the foreground belongs to our neighbours as well.
//
// # What it is not for
//
// A process has one set of signal handlers, one terminal and one set of
// children: open one Supervisor at a time, and start no other children while it
// is open, because it reaps those that it does not know.
package process
