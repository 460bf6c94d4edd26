package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// mark is what a data folder knows of the cluster that its process was in: a cluster
// that was lost, and is made again, looks like one that was always empty.
type mark struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

func markPath(dir string) string { return filepath.Join(dir, "cluster.json") }

// before returns the id of the cluster of the name that the folder's process was in.
// A mark that can't be read is as good as none: it only warns.
func before(dir, name string) string {
	if dir == "" {
		return ""
	}
	text, err := os.ReadFile(markPath(dir))
	var m mark
	if err != nil || json.Unmarshal(text, &m) != nil || m.Name != name {
		return ""
	}
	return m.ID
}

// remember notes in the folder which cluster its process is in.
func remember(dir, name, id string) error {
	if dir == "" || before(dir, name) == id {
		return nil
	}
	text, err := json.Marshal(mark{name, id})
	if err != nil {
		return err
	}
	tmp := markPath(dir) + ".new"
	err = os.WriteFile(tmp, append(text, '\n'), 0o600)
	if err == nil {
		err = os.Rename(tmp, markPath(dir))
	}
	if err != nil {
		if e := os.Remove(tmp); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
