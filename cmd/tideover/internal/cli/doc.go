// Package cli is the command line: one file family for each verb, which reads
// flags, calls the package that does the work, and turns the outcome into lines
// and an exit code. There is no retry loop here; that is package retry's.
package cli
