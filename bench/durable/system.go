package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// Callers is how many goroutines start tasks.
const Callers = 16

// workers is how many handlers run at once, unless a system works better with another
// number. It is the default of tideover, and more than the documentation of the other
// systems suggests.
const workers = 256

// System stores tasks on disk and runs them.
type System interface {
	// Start stores tasks. They are on disk when it returns.
	Start(ctx context.Context, tasks []Payload) error

	// Batch returns the best number of tasks for one Start.
	Batch() int

	// Completed returns how many tasks are recorded as completed.
	Completed(ctx context.Context) (int, error)

	// Settled reports whether the background work that follows the completion of
	// tasks is done. It is polled only every 100 ms, because it takes processor
	// time.
	Settled(ctx context.Context) (bool, error)

	// Servers returns the ids of the server processes that the system uses.
	Servers() []int

	Close(ctx context.Context) error
}

// Handle is the function that the handler of a system calls for each task.
type Handle func(Payload)

// Open opens a system that has no tasks.
type Open func(ctx context.Context, s Servers, handle Handle) (System, error)

// Servers has the addresses of the servers that the systems use.
type Servers struct {
	Dir      string // a folder for systems that run in our process
	Postgres string // connection string
	Redis    string // path of the socket
	PGPid    int    // of the postmaster
	RedisPid int
}

// Systems has the function that opens each measured system, by the system's name.
var Systems = map[string]Open{
	"tideover":      openTideover,
	"tideover-flow": openFlow,
	"river":         openRiverDefault,
	"river-tuned":   openRiverTuned,
	"asynq":         openAsynq,
}

const (
	pollTimed = 2 * time.Millisecond   // interval for conditions whose time is measured
	pollIdle  = 100 * time.Millisecond // interval for all other conditions
)

// payloadSize is the size of a payload's JSON.
const payloadSize = 200

// Payload is the input of a task.
type Payload struct {
	ID   int    `json:"id"`
	Due  int64  `json:"due"` // in nanoseconds; 0 means at once
	Data string `json:"data"`
}

// NewPayload returns a payload with 200 bytes of JSON: words from a vocabulary,
// so that it can be compressed and searched like typical data.
func NewPayload(id int, due time.Time) Payload {
	p := Payload{ID: id}
	if !due.IsZero() {
		p.Due = due.UnixNano()
	}
	text := fmt.Sprintf(`{"id":%d,"due":%d,"data":""}`, p.ID, p.Due)
	data := make([]byte, 0, payloadSize)
	random := rand.NewPCG(uint64(id), 0)
	for len(data) < payloadSize {
		data = append(data, vocabulary[random.Uint64()%uint64(len(vocabulary))]...)
	}
	p.Data = string(data[:payloadSize-len(text)])
	return p
}

var vocabulary = words(4096)

// words returns n words of eight letters and a space, always the same.
func words(n int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	list := make([]string, n)
	for i := range list {
		var w [9]byte
		for k := range w {
			w[k] = 'a' + byte(random.IntN(26))
		}
		w[8] = ' '
		list[i] = string(w[:])
	}
	return list
}

// Kind names the payload for River.
func (Payload) Kind() string { return "work" }

func (p Payload) due() time.Time { return time.Unix(0, p.Due) }

func (p Payload) encode() []byte {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // can't happen: every field can be encoded
	}
	return text
}

// pollUntil polls a condition until it holds, the first time at once. It polls because the
// systems have no events for these conditions, or only events that cost processor time.
func pollUntil(ctx context.Context, every time.Duration, ask func(context.Context) (bool, error)) error {
	tick := time.Tick(every)
	for {
		if ok, err := ask(ctx); err != nil || ok {
			return err
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
