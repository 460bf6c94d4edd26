// Package jetstream keeps the logs of several engines that share their work in
// NATS JetStream: a stream for each shard, a key-value bucket for the members and the
// owners of the shards, and an object store for blobs.
//
// # What makes it safe
//
// An entry is published with the sequence that it must follow, so an owner that
// was replaced can record nothing: the server rejects its append. The bucket only
// decides which member should work. If an answer is lost, the leader of the stream is
// asked for the entry, which has an id.
//
// Each entry has a checksum. A stream that was deleted, emptied or replaced by
// hand is noticed and never silently begun anew.
//
// What an acknowledged entry survives depends on the servers: with three
// replicas and sync_interval "always", the loss of any one server and a power cut
// of all. [Log.Check] reports what weakens that, and what to do.
//
// # Members
//
// Each [Log] is a member. It writes to its key in the bucket once a second, and
// all read the whole bucket as often. A member that is silent for [Config].LeaseTime
// is expelled by the others, one whose process is gone after a quarter of it;
// then its shards are free. A member that can't write ends its own leases before
// that. While the bucket itself can't be written, no member is expelled.
//
// The bucket is read, not watched: a consumer may stall, and ends with its
// server. A member that changes something notifies the others, which then read at once.
//
// # Permissions
//
// The permissions that a user of NATS needs, for a cluster with the name n:
//
//	publish:   n.>  $KV.n-cluster.>  $O.n-blobs.>  _INBOX.>
//	           $JS.API.STREAM.CREATE.>  $JS.API.STREAM.INFO.>  $JS.API.STREAM.PURGE.>
//	           $JS.API.STREAM.MSG.GET.>  $JS.API.DIRECT.GET.>
//	subscribe: n.>  _INBOX.>
//
// It is not a queue, and one process is better served by package sqlitelog.
package jetstream
