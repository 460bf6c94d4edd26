// Package steps runs the steps of workflows that the configuration file defines: commands
// and HTTP requests.
//
// [Workflow] and [Step] are their specification. The templates of a step are stored with
// its run and are rendered for each attempt. So a change of the file does not affect runs
// in progress.
//
// A command runs under a separate process, the guard, which is this program again; see
// package guard. The guard gives the command a process group and ends all processes that
// an attempt leaves behind. If the server is killed, the guard ends them before the next
// server repeats the attempt.
package steps
