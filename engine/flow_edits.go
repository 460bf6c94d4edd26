package engine

// Renamed says that an operation has another name since an earlier version of the function. Runs
// with a stored result of the old name use it for the new name. A run that waits for a signal of the
// old name gets one of either name. Call it at the beginning of the function, without a condition. A
// name with a key is written as name[key].
func Renamed(f *Flow, before, now string) {
	f.f.Renamed(before, now)
}

// Removed says that the function does not call operations with these names any more. Their stored
// results are not used, and a run that waits in such an operation continues. A name with a key is
// written as name[key]; that of a [Map] includes its operations. Call it at the beginning of the
// function, without a condition: a run that waits is called again when a call of the function has
// said the name.
func Removed(f *Flow, names ...string) {
	f.f.Removed(names)
}

// Added says that the function calls operations with these names since an earlier version. A run
// that has passed the place of such an operation executes it when it is called again. Without
// Added, such a run waits in state needs-handler. A run that has not come to that place, or
// has executed the operation already, needs no Added. A name with a key is written as name[key]; that
// of a [Map] includes its operations.
func Added(f *Flow, names ...string) {
	f.f.Added(names)
}
