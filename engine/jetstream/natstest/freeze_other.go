//go:build !unix

package natstest

import (
	"context"
	"errors"
)

var errNoSignals = errors.New("processes cannot be stopped on this system")

func (n *node) freeze(context.Context) error { return errNoSignals }
func (n *node) thaw() error                  { return errNoSignals }
func (n *node) reload() error                { return errNoSignals }
