// Package jetstream keeps the logs of several engines that share their work in
// NATS JetStream: a stream for each shard, a key-value bucket for the members and the
// owners of the shards, and an object store for blobs.
//
// # What makes it safe
//
// An entry is published with the sequence that it must follow, so an owner that
// was replaced can record nothing: the server rejects its append. The bucket only
// decides which member should work. If the answer to an append is lost, the owner asks
// the leader of the stream whether it has the entry, which it recognises by its id.
//
// Each entry has a checksum. If a stream was deleted, emptied or replaced by hand, the
// owner reports an error; it never silently starts an empty log.
//
// With three replicas and sync_interval "always", an acknowledged entry survives the
// loss of any one server and a power cut of all. [Log.Check] reports settings that
// weaken this guarantee, and what to do.
//
// # Members
//
// Each [Log] is a member. Once a second it writes a heartbeat to its key in the bucket
// and reads the whole bucket. The others expel a member without a heartbeat for
// [Config].LeaseTime, or for a quarter of it if its process has no connection to NATS;
// then its shards are free. A member that can't write ends its own leases before
// that. While the bucket itself can't be written, no member is expelled.
//
// Members read the bucket and do not watch it with a consumer, because a consumer may
// stall, and ends with its server. A member that changes something notifies the others,
// which then read at once.
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
// # What it is not for
//
// This package is not a queue. For a single process use package sqlitelog.
package jetstream
