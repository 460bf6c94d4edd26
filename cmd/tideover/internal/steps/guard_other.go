//go:build !unix

package steps

import (
	"context"
	"os"
)

// keep does nothing: commands are run on Unix only.
func keep(*os.File) {}

// lock does nothing: commands are run on Unix only.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
