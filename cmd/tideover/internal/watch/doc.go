// Package watch is `tideover watch`: it keeps one session going in the
// foreground. The session is a run of an engine in a folder of its own, so that
// the same command goes on where the last one was ended, however that was.
package watch
