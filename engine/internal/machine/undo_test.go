package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

// undoTest is a run of a flow, whose function the test plays. The judge checks which results the run
// has after each record.
type undoTest struct {
	*world
	run *Run
	def *Definition // of operations with attempts
}

func newUndoTest(t *testing.T) *undoTest {
	t.Helper()
	w := newWorld(t)
	w.judge = newJudge(w)
	u := &undoTest{world: w, def: w.define(&Definition{Name: "code", Op: true, Steps: steps(t, "", "op: fixed(1s)").Steps})}
	u.run = w.start(w.define(flowOf(t, "code")), Start{})
	w.attempt(u.run)
	return u
}

// call calls an operation, and returns its number.
func (u *undoTest) call(c *OpCall) int {
	u.t.Helper()
	if c.Child != nil {
		c.Child.ID, c.Child.Former = ChildID(u.run, int(u.run.flow.count)+1, 1), FormerChildren(u.run)[c.Name]
	}
	u.do(CallOp(u.run, c, u.now), nil)
	return int(u.run.flow.count)
}

// perform calls an operation with one attempt, which fails or succeeds.
func (u *undoTest) perform(name string, canUndo, fails bool) int {
	u.t.Helper()
	n := u.call(&OpCall{Name: name, Def: u.def, Undo: canUndo, Begin: true})
	rec, _ := u.m.Finish(&Result{Run: u.run.ID, Step: n, Attempt: 1, Failed: fails, Error: "it broke", Output: []byte("1"), Outcome: retry.Outcome{Final: fails}}, u.now, 0)
	u.do(rec, nil)
	return n
}

// endChild ends the child of an operation.
func (u *undoTest) endChild(n, undos int, why retry.Reason) {
	u.t.Helper()
	rec, ok, err := u.m.EndChild(&ChildEnd{Parent: Parent{Run: u.run.ID, Number: n}, Child: u.run.Flow().ChildOf(n).Run(), Reason: why, Code: "code", Text: fmt.Sprint(why), Output: []byte("1"), Undos: undos}, u.now)
	if err != nil || !ok {
		u.t.Fatalf("EndChild(%d) = %v, %v", n, ok, err)
	}
	u.do(rec, nil)
}

// retry retries the run, and calls its function.
func (u *undoTest) retry() {
	u.t.Helper()
	u.do(u.m.Retry(u.run.ID, "me", u.now))
	u.pass(time.Minute)
	u.attempt(u.run)
}

// A retry of a run that has undone its operations takes back these, their undos, and what failed since
// the run began to undo. Failures before that stay, unless the function gave up because of them. The
// former children of the operations that it takes back stay known, with their undos.
func TestARetryOfAnUndoneRunTakesBackWhatWasUndone(t *testing.T) {
	u := newUndoTest(t)
	child := u.call(&OpCall{Name: "child:a", Child: &Child{}})
	other := u.call(&OpCall{Name: "child:b", Child: &Child{}})
	u.endChild(child, 1, retry.StopPermanent)
	u.endChild(other, 0, retry.StopPermanent)
	u.finish(u.run, 0, Result{Failed: true, Error: "it broke", Outcome: retry.Outcome{Class: retry.ClassPermanent}, Redo: EncodeRedo([]int{child, other})})
	u.retry()

	child = u.call(&OpCall{Name: "child:a", Child: &Child{}})
	other = u.call(&OpCall{Name: "child:b", Child: &Child{}})
	u.call(&OpCall{Name: "await:go"})
	u.perform("do:undoable", true, false)
	redone, kept := u.perform("do:redone", false, true), u.perform("do:kept", false, true)
	u.do(FailFunction(u.run, &Result{Error: "it broke", Redo: EncodeRedo([]int{redone})}, u.now), nil)
	u.endChild(child, 2, 0) // it has succeeded before it could be canceled
	u.endChild(other, 1, retry.StopCanceled)
	u.perform("undo:undoable", false, false)
	u.do(EndUndo(u.run, "", nil, u.now), nil)
	u.check("before the retry", u.shadow, replayed(t, u.log), u.restored(frames(u.m.Snapshot(), nil, 1)))
	u.retry()

	var names []string
	for res := range ReadResults(u.run.Flow().Results()) {
		names = append(names, res.Name)
	}
	if got, want := fmt.Sprint(names), "[do:kept child:a]"; got != want || Undos(u.run) != 1 {
		t.Errorf("the run has the results %s and %d undos, want %s and 1; operation %d must stay", got, Undos(u.run), want, kept)
	}
	former := FormerChildren(u.run)
	if a, b := former["child:a"].Undos, former["child:b"].Undos; a != 2 || b != 1 {
		t.Errorf("the former children have %d and %d undos, want 2 and 1", a, b)
	}
	u.call(&OpCall{Name: "child:b", Child: &Child{}})
	u.check("at the end", u.shadow, replayed(t, u.log), u.restored(frames(u.m.Snapshot(), nil, 1)))
}

// The detached child of a run that undoes its operations continues. A retry knows it.
func TestARetryOfAnUndoneRunKnowsItsDetachedChild(t *testing.T) {
	u := newUndoTest(t)
	first := u.run.Flow().ChildOf(u.call(&OpCall{Name: "child:a", Child: &Child{Detached: true}})).Run()
	u.perform("do:undoable", true, false)
	u.do(FailFunction(u.run, &Result{Error: "it broke"}, u.now), nil)
	u.perform("undo:undoable", false, false)
	u.do(EndUndo(u.run, "", nil, u.now), nil)
	u.retry()
	again := u.call(&OpCall{Name: "child:a", Child: &Child{Detached: true}})
	if got := u.run.Flow().ChildOf(again).Former; got.ID != first || got.Origin != first {
		t.Errorf("the former child is %+v, want %s", got, first)
	}
	u.check("at the end", u.shadow, replayed(t, u.log))
}

// A dead run that gets the end of a child in the entry of a purge, while a snapshot is written, does
// not make the log unreadable.
func TestAPurgeInTheEntryOfAChildsEnd(t *testing.T) {
	u := newUndoTest(t)
	child := u.call(&OpCall{Name: "child:a", Child: &Child{Detached: true}})
	u.finish(u.run, 0, Result{Failed: true, Error: "it broke", Outcome: retry.Outcome{Class: retry.ClassPermanent}})
	u.pass(time.Hour)
	s := u.m.Snapshot()
	rec, ok, err := u.m.EndChild(&ChildEnd{Parent: Parent{Run: u.run.ID, Number: child}, Child: u.run.Flow().ChildOf(child).Run(), Output: []byte("1")}, u.now)
	if err != nil || !ok {
		t.Fatalf("EndChild = %v, %v", ok, err)
	}
	u.emit(rec)
	purge, _ := u.m.Purge(u.now-sec, u.now-sec, nil)
	u.emit(purge)
	u.commit()
	data := frames(s, nil, 1)
	u.restored(data)
	purge, ok = u.m.Purge(u.now-sec, u.now-sec, nil)
	if u.do(purge, nil); !ok || len(u.m.all) > 0 {
		t.Errorf("the next purge leaves %d runs", len(u.m.all))
	}
	u.restored(data)
}
