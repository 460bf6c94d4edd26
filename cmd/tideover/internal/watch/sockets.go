package watch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
)

// Folders returns the folders with the state of watches: the default one, and the one in the data
// folder if data is not "".
func Folders(data string) (list []string) {
	if socket, err := client.DefaultSocket(os.Getenv); err == nil {
		list = append(list, filepath.Join(filepath.Dir(socket), "watch"))
	}
	if data != "" {
		list = append(list, filepath.Join(data, "watch"))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Sockets returns the sockets of all watches in the folders, including those that are not running.
func Sockets(folders []string) (list []string) {
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue // no watch has run yet
		}
		for _, e := range entries {
			path := filepath.Join(folder, e.Name(), Socket)
			if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
				list = append(list, path)
			}
		}
	}
	return list
}
