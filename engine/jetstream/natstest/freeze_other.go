//go:build !unix

package natstest

import "errors"

var errNoSignals = errors.New("processes can't be stopped on this system")

func (n *node) freeze() error { return errNoSignals }
func (n *node) thaw() error   { return errNoSignals }
