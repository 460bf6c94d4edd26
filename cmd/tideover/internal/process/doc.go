// Package process runs a command one or more times, and ends all processes that it leaves
// running.
//
// A [Supervisor] stands between a command and the parent process of tideover. It gives each
// attempt its own process group and, if there is one, the terminal. It forwards signals and
// replays standard input. After a failed attempt it ends all processes that the attempt left
// running. It does not decide about retries: the caller calls [Supervisor.Run] again, or not.
//
// # Processes
//
// Processes are always ended in the same way: TERM to the whole group, and KILL after a grace
// period. On Linux, this process becomes a child subreaper, so that it inherits descendants
// that left the group (setsid, a double fork) when their parents die; it finds, ends and reaps
// them, too. On other systems only the group is known. After a success nothing is ended, since
// a command may start a daemon on purpose.
//
// # The terminal
//
// If standard input is a terminal and we have its foreground, the command's group gets the
// foreground during the attempt. Ctrl-C and window changes then reach the command from the
// kernel, and Ctrl-Z stops both of us. If standard input is not a terminal, the command gets the
// foreground only when it uses the terminal (ssh asking for a password), because the other
// commands of a pipeline share the foreground.
//
// # What it is not for
//
// A process has one set of signal handlers, one terminal and one set of children: open one
// Supervisor at a time, and start no other children meanwhile, because it reaps all children.
package process
