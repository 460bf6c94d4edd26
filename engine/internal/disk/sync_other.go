//go:build !unix

package disk

// SyncDir does nothing: Windows has no such call, and its file systems have a journal for names.
func SyncDir(string) error { return nil }
