package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// Operator has what an operator asks about a process and its place in a cluster: see [Engine.Operator].
type Operator struct {
	router *router
	dir    string
}

// Operator returns the methods for operators and their tools. Programs that only start and follow runs
// do not need them.
func (e *Engine) Operator() Operator { return Operator{&e.router, e.cfg.Dir} }

// MemberReply is the answer of a member to [Operator.AskMembers].
type MemberReply struct {
	Member journal.Member
	Reply  json.RawMessage // what its Config.AnswerMember has returned
	Err    error           // the error of that function, or why the member did not answer
}

// AskMembers sends a request to all other members of the cluster at once, and returns their
// answers in the order of their names. It returns nothing if the engine is not part of a
// cluster. A member of an older release answers with an error.
func (o Operator) AskMembers(ctx context.Context, request json.RawMessage) ([]MemberReply, error) {
	if o.router.cluster == nil {
		return nil, nil
	}
	log := o.router.cluster.log
	status, err := log.Status(ctx)
	if err != nil {
		return nil, err
	}
	var list []MemberReply
	for _, m := range status.Members {
		if m.ID != log.Member() {
			list = append(list, MemberReply{Member: m})
		}
	}
	var asked sync.WaitGroup
	for i := range list {
		asked.Go(func() {
			r := &list[i]
			a, err := askMember(ctx, log, r.Member.ID, &call{Op: opMember, Input: request})
			r.Reply, r.Err = a.Reply, err
		})
	}
	asked.Wait()
	return list, nil
}

// OwnStats is [Engine.Stats] of the shards that this process owns, and their number. Without
// a cluster it returns the same as Stats, and 1. It is cheap, because it sends no requests
// to other processes.
func (o Operator) OwnStats(ctx context.Context) (s Stats, shards int, err error) {
	if o.router.alone != nil {
		one, err := (queries{o.router.alone}).stats(ctx)
		if err != nil {
			return Stats{}, 1, err
		}
		return *one, 1, nil
	}
	answers := make([]*answer, o.router.count())
	for _, sh := range o.router.cluster.own() {
		// A shard that is being handed over is counted by its next owner.
		if one, err := (queries{sh}).stats(ctx); err == nil {
			answers[sh.number] = &answer{Stats: one}
			shards++
		}
	}
	s = mergeStats(answers)
	s.Troubles = append(s.Troubles, o.router.cluster.troubles()...)
	return s, shards, ctx.Err()
}

// BackupWithout is [Engine.Backup] for a cluster that has lost shards: it leaves out the
// given shards. It fails if one of them can be read, or may become readable later. It
// returns what was copied, but only for a cluster.
func (o Operator) BackupWithout(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	return o.router.backup(ctx, dir, shards)
}

// DiskUsage returns the size in bytes of each file in [Config.Dir], by its path relative
// to Dir.
func (o Operator) DiskUsage() (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(o.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			name, _ := filepath.Rel(o.dir, path)
			sizes[name] = info.Size()
		}
		return err
	})
	return sizes, err
}
