package audit

import "time"

// EntryKind is the kind of an [Entry].
type EntryKind string

// The kinds of entries.
const (
	RequestRefused  EntryKind = "request-refused"  // a request was refused: the token, the host, the user or the origin was wrong
	LoggedIn        EntryKind = "logged-in"        // a browser started a session with a token
	ConfigLoaded    EntryKind = "config-loaded"    // the configuration was loaded, at the start or after a change
	ConfigRefused   EntryKind = "config-refused"   // a changed configuration is not in effect, or only in part
	ProviderChanged EntryKind = "provider-changed" // a user changed the state of a provider
	EntriesDropped  EntryKind = "entries-dropped"  // entries of one kind were too many and are not in the file
)

// Entry is a line of the audit log about the access to the server or its configuration. The other
// lines are events of runs and providers. Fields that do not apply to a kind are left out.
type Entry struct {
	Kind    EntryKind `json:"kind"`
	Time    time.Time `json:"time"`
	By      string    `json:"by,omitempty"`      // the user
	From    string    `json:"from,omitempty"`    // address of the client; "socket" for the Unix socket
	Method  string    `json:"method,omitempty"`  // of the request
	Path    string    `json:"path,omitempty"`    // of the request, without its query
	Status  int       `json:"status,omitempty"`  // of the response
	Name    string    `json:"name,omitempty"`    // of the provider
	Note    string    `json:"note,omitempty"`    // the reason or the action
	Digest  string    `json:"digest,omitempty"`  // SHA-256 of the configuration file
	Changed []string  `json:"changed,omitempty"` // settings that have changed, without their values
	Of      EntryKind `json:"of,omitempty"`      // the kind of the entries that were dropped
	Count   int64     `json:"count,omitempty"`   // how many were dropped
}

// Entries that clients cause are limited, so that a flood of requests neither fills the disk nor
// pushes all other lines out of the files.
const (
	entryBurst  = 100              // of one kind at once
	entryEvery  = time.Second      // between two of one kind after that
	reportDrops = 10 * time.Second // delay until the number of dropped entries is written
)

// Drops are the numbers of lines that an audit log lacks since it was opened.
type Drops struct {
	Late    int64 // could not be written in time
	Limited int64 // were too many of one kind
}

// Record puts the entry in the queue, or drops it and counts it. It does not block. A nil Sink ignores
// it.
func (s *Sink) Record(e Entry) {
	if s == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	l := s.limits[e.Kind]
	if l == nil || l.rate.Allow() {
		s.enqueue(record{entry: &e})
		return
	}
	s.drops.limited.Add(1)
	if l.dropped.Add(1) == 1 {
		time.AfterFunc(reportDrops, func() {
			if n := l.dropped.Swap(0); n > 0 {
				s.enqueue(record{entry: droppedEntry(e.Kind, n)})
			}
		})
	}
}

func droppedEntry(of EntryKind, n int64) *Entry {
	return &Entry{Kind: EntriesDropped, Time: time.Now(), Of: of, Count: n, Note: "too many: after a burst of 100, one per second is written"}
}

// Drops returns how many lines the file lacks since the sink was opened. A nil Sink lacks none.
func (s *Sink) Drops() Drops {
	if s == nil {
		return Drops{}
	}
	return Drops{s.drops.late.Load(), s.drops.limited.Load()}
}

// Err returns why the last write failed, or nil. A nil Sink has no error.
func (s *Sink) Err() error {
	if s == nil {
		return nil
	}
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}
