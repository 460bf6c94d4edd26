package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
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
	*backend
	second  *secondCopy // nil means none
	outside bool        // this process is not a member
	servers serverSet
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

var (
	// oldest is the first version of the server with batches of direct gets and messages
	// that expire.
	oldest = [2]int{2, 11}

	// safe is the first version without known ways of losing acknowledged messages
	// when servers come and go.
	safe = [3]int{2, 12, 3}

	// tested is the version that this package is tested with.
	tested = [2]int{2, 15}
)

// checkServer returns an error if the connected server is too old, or its message size
// limit too small.
func checkServer(c *conn) error {
	version := c.nc.ConnectedServerVersion()
	if v, ok := parseVersion(version); ok && slices.Compare(v[:2], oldest[:]) < 0 {
		return fmt.Errorf("the NATS server has version %s; at least %d.%d is needed", version, oldest[0], oldest[1])
	}
	if room := c.nc.MaxPayload(); room < journal.MaxEntry+maxHeader {
		return fmt.Errorf("the NATS server accepts messages of at most %d bytes; set its max_payload to at least %d, such as 1MB",
			room, journal.MaxEntry+maxHeader)
	}
	return nil
}

// maxHeader is more than the size of the headers of any message of this package.
const maxHeader = 2000

func parseVersion(text string) (v [3]int, ok bool) {
	text, _, _ = strings.Cut(text, "-")
	_, err := fmt.Sscanf(text+"\n", "%d.%d.%d\n", &v[0], &v[1], &v[2])
	return v, err == nil
}

// checkServers checks the servers themselves. Only the system account can read their
// state; without it the finding says how to check by hand.
func (x *examiner) checkServers(ctx context.Context) {
	who := x.cfg.systemIdentity()
	if who == nil {
		x.checkVersion(x.c.nc.ConnectedServerName(), x.c.nc.ConnectedServerVersion())
		x.add(journal.Weak, `set sync_interval to "always" in the jetstream block of all servers; give credentials of the system account to have it checked`,
			"by default a server writes to disk two minutes later, and what was acknowledged is lost in a power cut",
			"it can't be shown that the servers sync each message to disk")
		return
	}
	servers, err := x.askServers(ctx, who)
	if err != nil || len(servers) == 0 {
		x.add(journal.Weak, "check the credentials of the system account", "it can't be shown that the servers sync each message to disk",
			"the servers do not report their configuration: %v", err)
		return
	}
	x.servers.answered = servers
	for _, s := range servers {
		x.checkServerInfo(s)
	}
}

// answerTime is how long the check collects answers of servers. It always waits that
// long, because it does not know how many servers there are.
const answerTime = time.Second

func (x *examiner) askServers(ctx context.Context, who nats.Option) (list []serverInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	system, err := dial(ctx, x.cfg, who)
	if err != nil {
		return nil, err
	}
	defer system.nc.Close()
	sub, err := system.request("$SYS.REQ.SERVER.PING.JSZ", struct{}{})
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if errors.Is(err, context.DeadlineExceeded) && len(list) > 0 {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		var s serverInfo
		if err := json.Unmarshal(m.Data, &s); err != nil {
			return nil, fmt.Errorf("answer of a server: %w", err)
		}
		s.skew = skew(s.Data.Now, begun, time.Now())
		list = append(list, s)
	}
}

// skew returns by how much another clock differs from ours at least. The other clock
// showed the time shown at some moment between from and to, which are times of our clock.
func skew(shown, from, to time.Time) time.Duration {
	return min(shown.Sub(from), 0) + max(shown.Sub(to), 0)
}

func (x *examiner) checkServerInfo(s serverInfo) {
	x.checkVersion(s.Server.Name, s.Server.Version)
	if s.Data.Disabled {
		return // it has no streams, or checkCopies reports it
	}
	x.addIf(!s.Data.Config.SyncAlways, journal.Weak, `set sync_interval to "always" in the server's jetstream block`,
		"what was acknowledged in that time is lost in a power cut",
		"server %s syncs to disk every %v", s.Server.Name, s.Data.Config.SyncInterval)
	limit := s.Data.Config.MaxStore
	x.addIf(limit > 0 && s.Data.Store > uint64(limit)/5*4, journal.Weak, "give it more room (max_file)",
		"when it is full nothing can be recorded", "server %s uses %d of %d bytes", s.Server.Name, s.Data.Store, limit)
	x.addSkew("server "+s.Server.Name, s.skew)
}

func (f *findings) checkVersion(name, version string) {
	v, ok := parseVersion(version)
	switch {
	case !ok:
		f.add(journal.Note, "use a release", "it is not known how it behaves", "server %s has the version %q", name, version)
	case slices.Compare(v[:], safe[:]) < 0:
		f.add(journal.Weak, fmt.Sprintf("update it to %d.%d", tested[0], tested[1]),
			"before 2.12.3 acknowledged messages may get lost when servers crash or are replaced", "server %s has version %s", name, version)
	case slices.Compare(v[:2], tested[:]) < 0:
		f.add(journal.Note, fmt.Sprintf("update it to %d.%d when you can", tested[0], tested[1]),
			"it is not the version that this was tested with", "server %s has version %s", name, version)
	}
}

// maxSkew is how much clocks may differ before schedules are noticeably early or late
// when they move from one process to another.
const maxSkew = 500 * time.Millisecond

// checkClocks compares the clocks of the members with that of the server which
// stored their last heartbeat.
func (x *examiner) checkClocks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	records, _, err := x.bucket.all(ctx)
	if err != nil {
		return // checkStreams reports what is wrong with the bucket
	}
	for _, r := range records {
		id, _ := parseKey(r.key)
		if id == "" {
			continue
		}
		m, err := x.bucket.stream.get(ctx, getRequest{Last: x.bucket.subject(r.key)})
		var record memberRecord
		if err != nil || json.Unmarshal(m.Data, &record) != nil || m.header.Get(operationHeader) != "" {
			continue // the member has left
		}
		// The server stored the heartbeat at most maxSkew after it was sent.
		x.addSkew(fmt.Sprintf("member %s (%s)", id, record.Name), skew(record.Wall, m.Time.Add(-maxSkew), m.Time))
	}
}

func (f *findings) addSkew(who string, d time.Duration) {
	f.addIf(d.Abs() > maxSkew, journal.Weak, "have all machines set their clocks by NTP",
		"schedules and starts at a time are early or late by that much, and waits too if work moves to a process that has seen no heartbeat of the machine",
		"the clock of %s is %v off", who, d.Round(time.Millisecond))
}
