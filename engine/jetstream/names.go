package jetstream

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// names is the name of a cluster. Its methods return the names of the cluster's streams
// and subjects.
type names string

func (n names) logStream(shard int) string     { return fmt.Sprintf("%s-log-%d", n, shard) }
func (n names) logSubject(shard int) string    { return fmt.Sprintf("%s.log.%d", n, shard) }
func (n names) bucket() string                 { return string(n) + "-cluster" }
func (n names) bucketStream() string           { return "KV_" + n.bucket() }
func (n names) blobs() string                  { return string(n) + "-blobs" }
func (n names) blobStream() string             { return "OBJ_" + n.blobs() }
func (n names) shardSubject(shard int) string  { return fmt.Sprintf("%s.shard.%d", n, shard) }
func (n names) memberSubject(id string) string { return string(n) + ".member." + id }

// The subjects of an object's chunks and of its description.
func (n names) chunkSubject(object string) string { return "$O." + n.blobs() + ".C." + object }
func (n names) metaSubject(object string) string  { return "$O." + n.blobs() + ".M." + object }

// noticeSubject is the subject on which a member announces changes of the bucket.
func (n names) noticeSubject() string { return string(n) + ".notice" }

// The keys of the bucket.
const settingsKey = "settings"

func memberKey(id string) string { return "member." + id }
func shardKey(shard int) string  { return fmt.Sprintf("shard.%d", shard) }

// settledKey returns the key of the bucket for a name of [Log.Settle]. It encodes the name,
// because a name may start or end with a dot and a key may not.
func settledKey(name string) string {
	return "settled." + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// parseKey returns the member id in the key of a member, or the shard number in the key
// of a shard. For other keys it returns "" and -1.
func parseKey(key string) (member string, shard int) {
	if id, ok := strings.CutPrefix(key, "member."); ok {
		return id, -1
	}
	if text, ok := strings.CutPrefix(key, "shard."); ok {
		if n, err := strconv.Atoi(text); err == nil {
			return "", n
		}
	}
	return "", -1
}
