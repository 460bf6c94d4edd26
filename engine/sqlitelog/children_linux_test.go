package sqlitelog

func systemChildren() map[string]func(dir string) error {
	return map[string]func(dir string) error{"full disk": childFullDisk, "large file": childLargeFile}
}
