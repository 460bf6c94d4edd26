package adopt

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processes returns the running processes of assistants. A process of another user is not known,
// but it can't have the records of this user open either, unless it is that of root.
func processes() (list []process, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		pid, wrong := strconv.Atoi(name)
		if wrong != nil {
			continue
		}
		folder := filepath.Join("/proc", name)
		text, err := os.ReadFile(filepath.Join(folder, "cmdline"))
		if err != nil || len(text) == 0 {
			continue // it has ended
		}
		p := process{pid: pid, args: strings.FieldsFunc(string(text), func(c rune) bool { return c == 0 })}
		if p.assistant = assistantOf(p.args); p.assistant == "" {
			continue
		}
		p.dir, _ = os.Readlink(filepath.Join(folder, "cwd")) // unknown on an error
		descriptors, _ := os.ReadDir(filepath.Join(folder, "fd"))
		for _, d := range descriptors {
			if file, err := os.Readlink(filepath.Join(folder, "fd", d.Name())); err == nil {
				p.files = append(p.files, file)
			}
		}
		list = append(list, p)
	}
	return list, err
}
