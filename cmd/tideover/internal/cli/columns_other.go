//go:build !unix

package cli

import "os"

// terminalSize returns 0: the size of a terminal is unknown on this system.
func terminalSize(*os.File) (columns, rows int) { return 0, 0 }
