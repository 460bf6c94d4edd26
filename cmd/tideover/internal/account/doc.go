// Package account shares what is known about the limit of an account between the sessions and steps that use
// it. A session that is told when its limit ends tells all others, and after a limit without a stated end only
// one of them at a time finds out whether it is over. What is known is in one file for each account, in the
// data folder, so that it survives a kill and holds for every process that uses the folder.
//
// The file is advice. Whatever is wrong with it, work goes on: each session then finds out by itself.
package account
