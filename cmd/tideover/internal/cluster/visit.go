package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/jetstream"
)

// visitTime is how long a command waits for servers.
const visitTime = 30 * time.Second

// Visit opens the log of a cluster that has no other members, for work on all of it.
func Visit(ctx context.Context, o Options) (*jetstream.Log, error) {
	c, err := o.log()
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, visitTime)
	defer cancel()
	l, err := jetstream.Open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if err := alone(ctx, l); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster %s: %w", c.Name, err), l.Close())
	}
	return l, nil
}

// alone refuses a cluster with others in it, and names them.
func alone(ctx context.Context, l *jetstream.Log) error {
	st, err := l.Status(ctx)
	if err != nil {
		return err
	}
	var others []string
	for _, m := range st.Members {
		if m.ID != l.Member() {
			others = append(others, fmt.Sprintf("%s (%s, heard of %v ago)", m.Name, m.ID, m.Silence.Round(100*time.Millisecond)))
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("in use by %s: stop them first", strings.Join(others, ", "))
	}
	return nil
}
