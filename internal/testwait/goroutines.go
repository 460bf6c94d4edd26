package testwait

import (
	"flag"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
)

// began is the start of the test binary, from which its deadline counts.
var began = time.Now()

// Goroutines waits until no other goroutine has one of the texts in its stack, and
// returns "". Shortly before the deadline of the test binary it returns the stacks of
// the goroutines that are left. It is for TestMain, after m.Run.
func Goroutines(texts ...string) (stacks string) {
	limit, err := time.ParseDuration(flag.Lookup("test.timeout").Value.String())
	if err != nil || limit <= 0 {
		limit = 10 * time.Minute
	}
	for {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		left := goroutines(texts)
		if len(left) == 0 || time.Since(began) > limit-reserve {
			return strings.Join(left, "\n\n")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// goroutines returns the stacks of other goroutines with one of the texts.
func goroutines(texts []string) []string {
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return slices.DeleteFunc(stacks[1:], func(stack string) bool { // the first is this one
		return !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(stack, text) })
	})
}
