// Package jetstream keeps the logs of several engines that share their work in
// NATS JetStream: a stream for each shard, a key-value bucket for who is there
// and who owns what, and an object store for blobs.
//
// # What makes it safe
//
// An entry is published with the sequence that it must follow, so an owner that
// was replaced can record nothing: its append is refused by the server. The
// bucket only decides who should work. An answer that was lost is found out
// about at the leader of the stream, by the id of the entry.
//
// Each entry has a checksum. A stream that was deleted, emptied or replaced by
// hand is noticed and never silently begun anew.
//
// What an acknowledged entry survives depends on the servers: with three
// replicas and sync_interval "always", the loss of any one server and a power cut
// of all. [Log.Check] tells what weakens that, and what to do.
//
// # Members
//
// Each [Log] is a member. It writes to its key in the bucket once a second, and
// all read the whole bucket as often. A member that is silent for [Config].LeaseTime
// is expelled by the others, one whose process is gone after a quarter of it;
// then its shards are free. A member that can't write ends its own leases before
// that. While the bucket itself can't be written, nobody is expelled.
//
// The bucket is read, not watched: a consumer may stall, and ends with its
// server. Whoever changes something tells the others, who then read at once.
//
// # Permissions
//
// A user of NATS that may do no more than is needed, for a cluster of the name n:
//
//	publish:   n.>  $KV.n-cluster.>  $O.n-blobs.>  _INBOX.>
//	           $JS.API.STREAM.CREATE.>  $JS.API.STREAM.INFO.>  $JS.API.STREAM.PURGE.>
//	           $JS.API.STREAM.MSG.GET.>  $JS.API.DIRECT.GET.>
//	subscribe: n.>  _INBOX.>
//
// It is not a queue, and one process is better served by package sqlitelog.
package jetstream
