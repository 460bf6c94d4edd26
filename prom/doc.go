// Package prom exports the calls of retry runners to Prometheus, under the
// names that the tideover command uses for its own work, with layer="call". It
// is a separate module, so that the library has no dependencies.
//
// Attempts per first attempt of one runner:
//
//	rate(tideover_attempts_total{name="api"}[5m]) / rate(tideover_first_attempts_total{name="api"}[5m])
//
// The names of runners, breakers and budgets become labels, so use only a few. After
// the first [MaxNames] names of runners, all other runners have the label "other".
package prom
