package doctor

// Free returns how many bytes are left on the disk that a folder is on. There is an
// error where the system does not say.
func Free(path string) (uint64, error) {
	d, err := diskOf(path)
	return d.free, err
}
