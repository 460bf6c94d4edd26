package cli

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"testing"
)

func TestNetHTTPQuotesNobodyInTheLog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := log.New(stdLogWriter{slog.New(slog.NewTextHandler(&b, nil))}, "", 0)
	l.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", `hush "hush`, nil)
	if got := b.String(); !strings.Contains(got, `level=WARN msg="Unsolicited response received on idle HTTP channel starting with \"…\"; err=<nil>"`) {
		t.Errorf("logged %q", got)
	}
}
