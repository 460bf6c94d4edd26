package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// op is what is asked of a shard.
type op string

const (
	opStart      op = "start"
	opGet        op = "get"
	opHas        op = "has"
	opWait       op = "wait"
	opCancel     op = "cancel"
	opRetry      op = "retry"
	opWake       op = "wake"
	opPause      op = "pause"
	opResume     op = "resume"
	opPostpone   op = "postpone"
	opReset      op = "reset"
	opReplay     op = "replay"
	opRerun      op = "rerun"
	opLatest     op = "latest"     // retry with another definition
	opDefinition op = "definition" // of a run
	opList       op = "list"
	opGroups     op = "groups"
	opFind       op = "find"
	opStats      op = "stats"
	opSchedule   op = "schedule"
	opSchedules  op = "schedules"
	opEvents     op = "events" // of a member
)

// call is something that is asked of a shard, wherever its owner is. The text is
// what processes say to each other: versions that run side by side must
// understand it.
type call struct {
	Op        op              `json:"op"`
	ID        string          `json:"id,omitempty"`
	By        string          `json:"by,omitempty"`
	Step      string          `json:"step,omitempty"`
	Text      string          `json:"text,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Until     time.Time       `json:"until,omitzero"`
	Filter    *Filter         `json:"filter,omitempty"`
	Exclude   []string        `json:"exclude,omitempty"`
	Limit     int             `json:"limit,omitempty"`
	Start     *start          `json:"start,omitempty"`
	Keep      []string        `json:"keep,omitempty"` // of latest: steps whose results are taken over
	Schedules []Schedule      `json:"schedules,omitempty"`
	After     uint64          `json:"after,omitempty"`
	Fresh     bool            `json:"fresh,omitempty"` // of groups, as in Filter
}

// start is a start on its way to a shard. Its id was drawn by who asks, so that
// asking again starts nothing twice.
type start struct {
	ID         string          `json:"id"`
	Definition json.RawMessage `json:"definition"`
	Key        string          `json:"key,omitempty"`
	Source     string          `json:"source,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	At         int64           `json:"at_ns,omitempty"`
	Timeout    time.Duration   `json:"timeout_ns,omitempty"`
	Again      bool            `json:"again,omitempty"` // it may have been started already

	def *machine.Definition // as read
}

// answer is what a shard says to a call.
type answer struct {
	Error      *fault          `json:"error,omitempty"`
	Started    *Started        `json:"started,omitempty"`
	Info       *Info           `json:"info,omitempty"`
	Definition json.RawMessage `json:"definition,omitempty"` // as it is stored
	Page       *Page           `json:"page,omitempty"`
	Cursors    []string        `json:"cursors,omitempty"`  // of the runs of the page
	Distance   int             `json:"distance,omitempty"` // of them to what was searched for
	Groups     []Group         `json:"groups,omitempty"`
	IDs        []string        `json:"ids,omitempty"`
	Stats      *Stats          `json:"stats,omitempty"`
	Schedules  []Schedule      `json:"schedules,omitempty"`
	Over       bool            `json:"over,omitempty"` // the run that is waited for is
	Happened   *happened       `json:"happened,omitempty"`
}

// longestWait is how long a shard waits with the answer to a wait.
const longestWait = 20 * time.Second

// perform does what is asked of the shard.
func (sh *shard) perform(ctx context.Context, c *call) (a answer, err error) {
	switch c.Op {
	case opStart:
		a.Started, err = sh.startCalled(ctx, c.Start)
	case opGet:
		a.Info, err = sh.get(ctx, c.ID)
	case opHas:
		_, err = sh.load(ctx, c.ID)
	case opWait:
		a.Over, err = sh.waitFor(ctx, c.ID)
	case opCancel:
		err = sh.cancel(ctx, c.ID, c.By)
	case opRetry:
		err = sh.retry(ctx, c.ID, c.By)
	case opWake:
		err = sh.wake(ctx, c.ID, c.By)
	case opPause:
		err = sh.pause(ctx, c.ID, c.By)
	case opResume:
		err = sh.resume(ctx, c.ID, c.By)
	case opPostpone:
		err = sh.postpone(ctx, c.ID, c.Until, c.By)
	case opReset:
		err = sh.reset(ctx, c.ID, c.By)
	case opReplay:
		a.Started, err = sh.again(ctx, c.ID, c.Input, c.By)
	case opRerun:
		a.Started, err = sh.rerun(ctx, c.ID, c.Step, c.By)
	case opLatest:
		a.Started, err = sh.retryLatest(ctx, c)
	case opDefinition:
		a.Definition, a.Info, err = sh.definition(ctx, c.ID)
	case opList:
		if c.Filter == nil {
			return a, fmt.Errorf("%w: a list of nothing", errCall)
		}
		return sh.list(ctx, *c.Filter)
	case opGroups:
		if c.Fresh {
			sh.refresh(ctx)
		}
		a.Groups, err = sh.groups(ctx, c.Limit, c.Exclude)
	case opFind:
		a.IDs, err = sh.find(ctx, c.Text, c.Limit)
	case opStats:
		a.Stats, err = sh.stats(ctx)
	case opSchedule:
		err = sh.setSchedules(ctx, c.Schedules)
	case opSchedules:
		a.Schedules, err = sh.listSchedules(ctx)
	default:
		err = fmt.Errorf("%w: %q, which a newer version may know", errCall, c.Op)
	}
	return a, err
}

// startCalled starts a run that another process asks for.
func (sh *shard) startCalled(ctx context.Context, c *start) (*Started, error) {
	if c == nil {
		return nil, fmt.Errorf("%w: a start of nothing", errCall)
	}
	def, afar := c.def, c.def == nil
	if afar {
		var err error
		if def, err = machine.ParseDefinition(c.Definition); err != nil {
			return nil, err
		}
	}
	id, err := machine.ParseID(c.ID)
	if err != nil {
		return nil, err
	}
	if c.Again || afar { // an earlier call may have started it
		switch stored, err := sh.stored(ctx, id); {
		case err != nil:
			return nil, err
		case stored:
			return &Started{ID: c.ID}, nil
		}
	}
	return sh.start(ctx, def, &machine.Start{ID: id, Key: c.Key, Source: c.Source, Input: c.Input, At: c.At, Timeout: c.Timeout})
}
