// Package account shares the limit of an account between the sessions and steps that use it. If one of
// them gets a limit with a stated end, all wait for that end. After a limit without a stated end, only one
// of them at a time probes whether the limit is over. The state of each account is in one file in the data
// folder, so that it survives a kill and applies to every process that uses the folder.
//
// The file is only advice. If it can't be read or written, work continues, and each session finds limits
// itself.
package account
