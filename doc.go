// Package tideover gets work through failure: the same retry policy in Go code,
// in the shell, in HTTP traffic and in jobs that survive a crash.
//
// This package is only the map, and has the documentation as [Docs]. The library has no dependencies, and each of
// its packages can be used alone:
//
//   - [github.com/tideover/tideover/retry]: policies, the decision, the runner
//   - [github.com/tideover/tideover/backoff]: delays as pure functions
//   - [github.com/tideover/tideover/breaker]: circuit breaker
//   - [github.com/tideover/tideover/limit]: retry budgets, concurrency, rate
//   - [github.com/tideover/tideover/retryhttp]: an http.RoundTripper that retries
//
// The command is github.com/tideover/tideover/cmd/tideover.
package tideover

import "embed"

// Docs has the documentation: README.md, and the folder docs with its decisions, pictures and
// example files, under their paths in the repository. The command serves it at /docs. A program
// that does not use Docs does not contain it.
//
//go:embed README.md docs/*.md docs/adr/*.md
//go:embed docs/*.svg docs/*.png docs/*.gif docs/*.yaml docs/*.json docs/*.service
var Docs embed.FS
