//go:build race

package bench_test

// raceEnabled: the race detector allocates on its own account.
const raceEnabled = true
