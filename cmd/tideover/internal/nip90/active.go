package nip90

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/recentset"
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
	ended recentset.Set     // ids of runs that ended lately; see add
}

func newActiveJobs() activeJobs {
	return activeJobs{byRun: map[string]*active{}, runs: map[string]string{}, ended: recentset.New(recentRuns)}
}

// recentRuns is how many ended runs are remembered.
const recentRuns = 4096

// add adds a job, unless it is already there or has ended: a job is added after its run was started,
// and the run may have ended by then.
func (j *activeJobs) add(run string, a *active) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.byRun[run] == nil && !j.ended.Has(run) {
		j.byRun[run], j.runs[a.request] = a, run
	}
}

// remove removes a job that has ended.
func (j *activeJobs) remove(run string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended.Add(run)
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
