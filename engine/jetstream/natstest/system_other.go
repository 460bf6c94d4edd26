//go:build !linux && !darwin && !freebsd

package natstest

import (
	"context"
	"errors"
	"os"
)

var errNoSignals = errors.New("processes cannot be stopped on this system")

func (n *node) freeze(context.Context) error { return errNoSignals }
func (n *node) thaw() error                  { return errNoSignals }
func (n *node) reload() error                { return errNoSignals }

// lock does nothing: processes may build the server at the same time.
func lock(*os.File) error { return nil }
