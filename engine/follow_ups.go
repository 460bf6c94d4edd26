package engine

// OnEnd starts a run of the workflow w when a run of this workflow ends, with any outcome.
// The input of the new run is an [Ended]. The new run is stored together with the end, so
// exactly one is started. It is started only the first time that a run ends: a dead run that
// is retried or canceled starts no second one. With [OnGiveUp] in the same workflow, a run
// that dies starts both.
//
// A run ends when its outcome is decided. Attempts of a run that was canceled or timed out
// may still be running then.
//
// OnEnd is part of the definition that a run keeps until its end. So the new run is started
// even if w is no longer registered; it waits in state needs-handler then.
func OnEnd(w *Workflow) Part {
	return func(b *builder) { b.core.OnEnd(coreOf(w)) }
}

// OnGiveUp starts a run of the workflow w, the follow-up run, whenever a run of this
// workflow dies. The input of the follow-up run is a [GaveUp]. The follow-up run is stored
// together with the death, so exactly one is started for each death.
//
// Large inputs and outputs are not stored again. They are read from the dead run when an
// attempt of the follow-up run begins. The dead run is kept until the follow-up run has
// ended. But a dead run that is canceled or replayed is kept only for Config.Retention. If
// it does not exist any more, the attempt fails with an error that says so.
func OnGiveUp(w *Workflow) Part {
	return func(b *builder) { b.core.OnGiveUp(coreOf(w)) }
}
