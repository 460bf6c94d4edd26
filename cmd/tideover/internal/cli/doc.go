// Package cli implements the command line. Each command has its own files, which parse
// flags, call the package that does the work, and turn the result into output and an exit
// code. Retry loops belong to package retry, not here.
package cli
