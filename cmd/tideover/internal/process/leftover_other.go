//go:build !linux

package process

import (
	"context"
	"time"
)

// EndLeftovers does nothing: there is no list of processes to look at.
func EndLeftovers(context.Context, []Leftovers, time.Duration) error { return nil }

// NewCgroup returns "": there are none.
func NewCgroup() string { return "" }

// RemoveCgroup does nothing.
func RemoveCgroup(string) {}

// RemoveEmptyCgroups does nothing.
func RemoveEmptyCgroups() {}
