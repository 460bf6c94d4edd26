// Package clustertest has no code, only tests of engines that share a cluster
// of real servers. In the longest test all of them are processes, which are
// killed, stopped and cut off again and again. A witness file, written by the
// handlers, shows what must have happened.
package clustertest
