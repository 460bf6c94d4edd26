//go:build !unix

package guard

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// keep does nothing: commands are run on Unix only.
func keep(*os.File) {}

// lockFile does nothing: commands are run on Unix only.
type lockFile struct{}

func lock(context.Context, string) (*lockFile, error) { return nil, process.ErrUnsupported }

func (*lockFile) unlock() {}

func (*lockFile) leftovers() []process.Leftovers { return nil }

func (*lockFile) note(process.Leftovers) error { return nil }

func endLeftovers(string) {}

// Sweep does nothing.
func Sweep(context.Context, string, time.Duration, *slog.Logger) error { return nil }

// apart does nothing.
func apart(*exec.Cmd, bool) {}
