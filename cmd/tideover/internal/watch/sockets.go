package watch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
)

// Folders returns the folders in which each watch has a folder of its own: at the default place
// and in the data folder, if that is not "".
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

// Sockets returns the sockets of all watches in the folders, also of those that do not run.
func Sockets(folders []string) (list []string) {
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue // none has ever run
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
