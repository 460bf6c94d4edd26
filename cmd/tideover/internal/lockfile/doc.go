// Package lockfile takes locks on files. The operating system releases a lock when the
// process ends, even if it is killed.
package lockfile
