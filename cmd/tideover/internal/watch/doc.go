// Package watch implements `tideover watch`: it runs one session in the foreground. The session
// is a run of an engine in a folder of its own, so that the same command continues it after any
// kind of end.
package watch
