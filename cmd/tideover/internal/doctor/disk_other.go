//go:build !linux

package doctor

import "errors"

func diskOf(string) (disk, error) { return disk{}, errors.New("this system does not say") }

// unset reports whether the system says that nobody sets its clock.
func unset() bool { return false }
