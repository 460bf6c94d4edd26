//go:build !linux

package doctor

import "errors"

func diskOf(string) (disk, error) { return disk{}, errors.New("not supported on this system") }

// clockUnset returns false: the state of the clock is unknown on this system.
func clockUnset() bool { return false }
