package jetstream

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
)

// settledKey is where the value of a name is kept. Names may have dots in places
// where keys have none.
func settledKey(name string) string {
	return "settled." + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// Settle implements [journal.Cluster].
func (l *Log) Settle(ctx context.Context, name, value string) (settled string, err error) {
	if name == "" || len(name) > 200 {
		return "", fmt.Errorf("settle %q: the name must have 1 to 200 characters", name)
	}
	for a := range asks.Attempts(ctx, &err) {
		settled, err = l.settleOnce(a.Context(), settledKey(name), value)
	}
	if err != nil {
		return "", fmt.Errorf("settle %q: %w", name, plain(err))
	}
	return settled, nil
}

// settleOnce gives the value, unless there is one. When the answer was lost, the
// next attempt finds it.
func (l *Log) settleOnce(ctx context.Context, key, value string) (string, error) {
	if l.life.Err() != nil {
		return "", errClosed
	}
	found, err := l.bucket.get(ctx, key)
	if err == nil {
		return string(found.value), nil
	}
	if !errors.Is(err, errNoMessage) {
		return "", err
	}
	if value == "" {
		return "", nil
	}
	_, err = l.bucket.put(ctx, key, []byte(value), found.revision)
	if errors.Is(err, errConflict) {
		return "", errInProcess // somebody was faster: it is there now
	}
	return value, err
}
