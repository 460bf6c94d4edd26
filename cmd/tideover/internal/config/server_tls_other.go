//go:build !unix

package config

import "io/fs"

// ofRoot returns false, because the owner of a file is unknown on this system.
func ofRoot(fs.FileInfo) bool { return false }
