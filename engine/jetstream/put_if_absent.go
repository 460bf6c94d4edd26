package jetstream

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
)

// settledKey returns the key of the bucket for a name of Settle. It encodes the name,
// because a name may start or end with a dot and a key may not.
func settledKey(name string) string {
	return "settled." + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// Settle implements [journal.Cluster].
func (l *Log) Settle(ctx context.Context, name, value string) (settled string, err error) {
	if name == "" || len(name) > 200 {
		return "", fmt.Errorf("settle %q: the name must have 1 to 200 characters", name)
	}
	for a := range asks.Attempts(ctx, &err) {
		settled, err = l.putIfAbsent(a.Context(), settledKey(name), value)
	}
	return settled, wrapf(plain(err), "settle %q", name)
}

// putIfAbsent stores the value, unless the key has a value already, and returns the value
// that the key has then. An empty value is not stored. If the answer of the server is
// lost, the caller repeats the call, which then finds the value.
func (b *backend) putIfAbsent(ctx context.Context, key, value string) (string, error) {
	if b.life.Err() != nil {
		return "", errClosed
	}
	found, err := b.bucket.get(ctx, key)
	if err == nil {
		return string(found.value), nil
	}
	if !errors.Is(err, errNoMessage) {
		return "", err
	}
	if value == "" {
		return "", nil
	}
	_, err = b.bucket.put(ctx, key, []byte(value), found.revision)
	if errors.Is(err, errConflict) {
		return "", errInProcess // another member has just stored a value: the next attempt reads it
	}
	return value, err
}
