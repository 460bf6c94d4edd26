package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// clusterRecord identifies the cluster that the process of a data folder belongs to. Without it,
// a cluster that was lost and created again looks like one that was always empty.
type clusterRecord struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

func clusterRecordPath(dir string) string { return filepath.Join(dir, "cluster.json") }

// readClusterRecord returns the id of the cluster of that name that the folder's process was in;
// empty if the record is missing or unreadable, because it is only needed for a warning.
func readClusterRecord(dir, name string) string {
	if dir == "" {
		return ""
	}
	text, err := os.ReadFile(clusterRecordPath(dir))
	var m clusterRecord
	if err != nil || json.Unmarshal(text, &m) != nil || m.Name != name {
		return ""
	}
	return m.ID
}

// writeClusterRecord stores in the folder which cluster its process is in.
func writeClusterRecord(dir, name, id string) error {
	if dir == "" || readClusterRecord(dir, name) == id {
		return nil
	}
	text, err := json.Marshal(clusterRecord{name, id})
	if err != nil {
		return err
	}
	tmp := clusterRecordPath(dir) + ".new"
	err = os.WriteFile(tmp, append(text, '\n'), 0o600)
	if err == nil {
		err = os.Rename(tmp, clusterRecordPath(dir))
	}
	if err != nil {
		if e := os.Remove(tmp); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
