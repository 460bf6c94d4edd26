// Package steps does the work of workflows that are written in the configuration file:
// commands and HTTP requests.
//
// [Workflow] and [Step] are their specification. A step is stored with its run as it was
// written, and is rendered when it is attempted, so that runs in progress go on as they
// began when the file changes.
//
// A command runs under a process of its own, the guard: this program again, see package
// guard. The guard gives the command a process group and ends all processes that an
// attempt leaves behind. It does so also if the server is killed, before the next server
// makes the attempt again.
package steps
