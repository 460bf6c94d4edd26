package jetstream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// findings collects the findings of a check.
type findings struct {
	redact func(string) string
	list   []journal.Finding
}

func (f *findings) add(severity, do, why, format string, args ...any) {
	f.list = append(f.list, journal.Finding{
		Severity: severity, What: f.redact(fmt.Sprintf(format, args...)), Why: why, Do: do,
	})
}

// addIf adds the finding if the problem exists.
func (f *findings) addIf(exists bool, severity, do, why, format string, args ...any) {
	if exists {
		f.add(severity, do, why, format, args...)
	}
}

// sorted returns the findings, the worst first.
func (f *findings) sorted() []journal.Finding {
	rank := map[string]int{journal.Broken: 0, journal.Weak: 1, journal.Note: 2}
	slices.SortStableFunc(f.list, func(a, b journal.Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return f.list
}

// examiner checks a cluster.
type examiner struct {
	findings
	cfg      Config
	c        *conn
	names    names
	bucket   bucket
	second   *secondCopy // nil means none
	settings settings
	outside  bool // this process is not a member
	servers  serverSet
}

// serverSet has the servers that a check has reached.
type serverSet struct {
	answered []serverInfo // what the servers have told the system account
	dead     []string     // addresses that do not answer
}

// serverInfo is the answer of a server about itself.
type serverInfo struct {
	Server struct {
		Name    string `json:"name"`
		Version string `json:"ver"`
	} `json:"server"`
	Data struct {
		Now      time.Time `json:"now"`
		Disabled bool      `json:"disabled"`
		Store    uint64    `json:"storage"`
		Config   struct {
			MaxStore     int64         `json:"max_storage"`
			SyncAlways   bool          `json:"sync_always"`
			SyncInterval time.Duration `json:"sync_interval"`
		} `json:"config"`
		Meta struct {
			Size int `json:"cluster_size"`
		} `json:"meta_cluster"`
	} `json:"data"`
	skew time.Duration // least difference of its clock from ours
}

// find returns what the server with the name has answered to the system account.
func (s *serverSet) find(name string) (info serverInfo, answered bool) {
	if i := slices.IndexFunc(s.answered, func(info serverInfo) bool { return info.Server.Name == name }); i >= 0 {
		return s.answered[i], true
	}
	return info, false
}

// names returns the names of the servers that have answered, in order.
func (s *serverSet) names() (list []string) {
	for _, info := range s.answered {
		list = append(list, info.Server.Name)
	}
	slices.Sort(list)
	return list
}

// withMissing adds the servers and addresses that do not answer to the text of a
// finding. checkAddresses does not repeat these addresses.
func (s *serverSet) withMissing(what string) string {
	size := 0
	for _, info := range s.answered {
		size = max(size, info.Data.Meta.Size)
	}
	if n := len(s.answered); n > 0 && n < size {
		what += fmt.Sprintf("; of %d servers there are only %s", size, strings.Join(s.names(), ", "))
	}
	if len(s.dead) > 0 {
		what += "; no answer from " + strings.Join(s.dead, ", ")
		s.dead = nil
	}
	return what
}
