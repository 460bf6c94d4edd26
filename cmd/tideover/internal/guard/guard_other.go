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

// closeOnExec does nothing: commands run on Unix only.
func closeOnExec(*os.File) {}

// lockFile does nothing: commands run on Unix only.
type lockFile struct{}

func lock(context.Context, string) (*lockFile, error) { return nil, process.ErrUnsupported }

func (*lockFile) unlock() {}

func (*lockFile) leftovers() []process.Leftovers { return nil }

func (*lockFile) record(process.Leftovers) error { return nil }

func endLeftovers(string) {}

// Sweep does nothing.
func Sweep(context.Context, string, time.Duration, *slog.Logger) error { return nil }

// ownSession does nothing.
func ownSession(*exec.Cmd, bool) {}
