package nip90

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// active is a job that has no outcome yet.
type active struct {
	request   string    // id of the request
	customer  string    // public key
	created   time.Time // when the request was made
	published int       // number of feedback events that were published
}

// activeJobs are the jobs that have no outcome yet.
type activeJobs struct {
	mu    sync.Mutex
	byRun map[string]*active
	runs  map[string]string // ids of runs, by id of the request
	ended recent            // runs that ended lately
}

func newActiveJobs() activeJobs {
	return activeJobs{byRun: map[string]*active{}, runs: map[string]string{}}
}

// add adds a job, unless it is already there or has ended.
func (j *activeJobs) add(run string, a *active) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.byRun[run] == nil && !j.ended.has(run) {
		j.byRun[run], j.runs[a.request] = a, run
	}
}

// remove removes a job that has ended.
func (j *activeJobs) remove(run string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended.add(run)
	if a := j.byRun[run]; a != nil {
		delete(j.runs, a.request)
		delete(j.byRun, run)
	}
}

// run returns the id of the run for a request; "" if the job is not active.
func (j *activeJobs) run(request string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs[request]
}

// list returns the ids of the runs of all active jobs.
func (j *activeJobs) list() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Keys(j.byRun))
}

// size returns the number of active jobs.
func (j *activeJobs) size() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.byRun)
}

// hasRoom reports whether the request is already active, or fewer than limit jobs are active.
func (j *activeJobs) hasRoom(request string, limit int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.byRun) < limit || j.runs[request] != ""
}

// recordPublished sets the number of published events of a run, and returns the number before.
func (j *activeJobs) recordPublished(run string, now int) (before int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.byRun[run]
	if a == nil {
		return now // the job has ended in the meantime, so nothing is left to publish
	}
	before, a.published = a.published, max(a.published, now)
	return before
}

// recent keeps the ids of the last recentRuns runs that have ended. [activeJobs.add] ignores their
// jobs: a job is added after its run was started, and the run may have ended by then.
type recent struct {
	known map[string]bool
	order []string // ring of the ids in known
	next  int      // index of the oldest in order
}

const recentRuns = 4096

func (r *recent) has(run string) bool { return r.known[run] }

func (r *recent) add(run string) {
	if r.known == nil {
		r.known, r.order = map[string]bool{}, make([]string, recentRuns)
	}
	if r.known[run] {
		return
	}
	delete(r.known, r.order[r.next])
	r.known[run], r.order[r.next] = true, run
	r.next = (r.next + 1) % recentRuns
}
