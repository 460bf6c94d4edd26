// Package clustertest has no code, only tests of engines that share a cluster of
// real servers. In the longest one all of them are processes, which are killed,
// stopped and cut off again and again, and a witness that is not the engine says
// what must have come of it.
package clustertest
