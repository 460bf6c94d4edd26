// Package lockfile locks files. The operating system releases a lock when the
// process ends, however that happens.
package lockfile
