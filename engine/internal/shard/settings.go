package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
)

// Settings is what the shards and the cluster of an engine read of its engine.Config, with the same names.
type Settings struct {
	Dir           string
	Log           journal.Log
	AcceptLoss    bool
	Concurrency   int
	Retention     time.Duration
	DeadRetention time.Duration
	MaxPayload    int
	Grace         time.Duration
	Logger        *slog.Logger
	Redact        func(string) string
	Extract       func(ctx context.Context, trace string) context.Context // adds a stored trace context; nil if there are no traces
	AnswerMember  func(ctx context.Context, request json.RawMessage) (json.RawMessage, error)
	Rand          func() uint64

	SnapshotAfter int64
	MaxFunctions  int
	MaxCalls      int
	Wall          func(time.Time) int64
	Uptime        func() (time.Duration, string)
}

const maxError = 4 << 10

// errorText returns the text of an error as it is stored: redacted, shortened to a limit,
// and as valid UTF-8.
func (s *Settings) errorText(text string) string {
	text = s.Redact(text)
	if len(text) > maxError {
		kept := textfmt.Truncate(text, maxError)
		text = fmt.Sprintf("%s… (%d bytes more)", kept, len(text)-len(kept))
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// encodeNote returns the progress or the memo of an attempt as it is stored: redacted JSON.
func (s *Settings) encodeNote(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(text) > maxError {
		return nil, fmt.Errorf("%d bytes, at most %d", len(text), maxError)
	}
	if text = []byte(s.Redact(string(text))); !json.Valid(text) {
		text, _ = json.Marshal(string(text)) // Redact broke the JSON: store it as a string
	}
	return text, nil
}
