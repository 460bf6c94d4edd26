// Package prom counts the calls of retry runners for Prometheus, under the names
// that the tideover command has for its own work, with layer="call". It is a module
// of its own, so that the library has no dependencies.
//
// Attempts for each first attempt, of one runner:
//
//	rate(tideover_attempts_total{name="api"}[5m]) / rate(tideover_first_attempts_total{name="api"}[5m])
//
// Names are those of runners, breakers and budgets. They become labels, so they
// should be few: after the first [MaxNames], all others are "other".
package prom
