// Package info has the values that programs get from an engine, and give to it: runs, lists, schedules,
// questions, problems. Package engine has them under the same names.
package info
