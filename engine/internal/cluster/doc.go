// Package cluster sends calls to the shards of a process and of other processes, merges their answers, and keeps the
// shards that are assigned to this process open.
package cluster
