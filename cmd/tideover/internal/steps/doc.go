// Package steps does the work of workflows that are written in the
// configuration file: commands and HTTP requests.
//
// A step is stored with its run as it was written, and is rendered when it is
// attempted, so that runs in progress go on as they began when the file changes.
//
// A command runs under a process of its own that watches over it, the guard: this
// program again, see [Guard]. It gives the command a process group, ends whatever
// an attempt leaves behind, and does so too when the server is killed, before the
// server's successor makes the attempt again.
package steps
