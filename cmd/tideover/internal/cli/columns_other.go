//go:build !unix

package cli

import "os"

// columns returns 0: the width of a terminal is unknown on this system.
func columns(*os.File) int { return 0 }

// rows returns 0: the height of a terminal is unknown on this system.
func rows(*os.File) int { return 0 }
