//go:build !linux

package process

import (
	"context"
	"time"
)

// EndLeftovers does nothing: processes can't be listed on this system.
func EndLeftovers(context.Context, []Leftovers, time.Duration) error { return nil }

// NewCgroup returns "": there are no cgroups on this system.
func NewCgroup() string { return "" }

// RemoveCgroup does nothing.
func RemoveCgroup(string) {}

// RemoveEmptyCgroups does nothing.
func RemoveEmptyCgroups() {}

// KillSession does nothing: processes can't be listed on this system.
func KillSession(int) {}
