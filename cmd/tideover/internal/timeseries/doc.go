// Package timeseries counts runs over the last hour, the last day and the last two weeks, in intervals
// of fixed length, and stores the counts in one small file. It has a series for each workflow and one
// for all of them. It is not for metrics: those are in package metrics and have no history.
package timeseries
