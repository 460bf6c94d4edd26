//go:build !unix

package jetstream

// syncDir has nothing to do where folders can't be synced.
func syncDir(string) error { return nil }
