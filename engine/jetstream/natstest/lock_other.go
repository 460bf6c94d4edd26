//go:build !linux && !darwin && !freebsd

package natstest

import "os"

// lock does nothing: processes may build the server at the same time.
func lock(*os.File) error { return nil }
