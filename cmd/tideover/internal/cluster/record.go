package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/tideover/tideover/internal/atomicfile"
)

// clusterRecord is stored in the data folder and identifies the cluster that the process has joined.
// By the id, the next start detects that the cluster was lost and created again under the same name.
type clusterRecord struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

func clusterRecordPath(dir string) string { return filepath.Join(dir, "cluster.json") }

// readClusterRecord returns the stored id of the cluster of that name. It returns "" if the record
// is missing, unreadable or about another cluster; that is no error, because the id is only needed
// for a warning.
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

// writeClusterRecord stores the name and the id of the cluster in the folder, unless the folder has
// them already or dir is "".
func writeClusterRecord(dir, name, id string) error {
	if dir == "" || readClusterRecord(dir, name) == id {
		return nil
	}
	text, err := json.Marshal(clusterRecord{name, id})
	if err != nil {
		return err
	}
	return atomicfile.Write(clusterRecordPath(dir), append(text, '\n'))
}
