//go:build unix

package quota_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
)

// fakeCodex creates a codex whose app-server runs a script.
func fakeCodex(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "codex")
	text := "#!/bin/sh\ntest \"$1\" = app-server || exit 9\n" + script
	testfile.WriteScript(t, path, text)
	return path
}

// protocol answers like the app-server, which rejects all requests before initialized.
const protocol = `
while read -r line; do
  case "$line" in
  *'"method":"initialize"'*) echo '{"method":"account/updated","params":{}}'; echo '{"id":1,"result":{"userAgent":"codex"}}' ;;
  *'"method":"initialized"'*) ready=1 ;;
  *account/rateLimits/read*) test "$ready" || { echo '{"id":2,"error":{"message":"Not initialized"}}'; continue; }
    echo '{"id":2,"result":{"rateLimits":{"primary":{"usedPercent":91,"windowDurationMins":300,"resetsAt":1794747600},"secondary":{"usedPercent":20.5,"windowDurationMins":10080}},"rateLimitsByLimitId":{"codex":{"primary":{"usedPercent":91,"windowDurationMins":300,"resetsAt":1794747600}}}}}' ;;
  esac
done
`

func TestCodexIsAskedForItsQuota(t *testing.T) {
	t.Parallel()
	got, err := quota.Codex(testwait.Context(t), []string{fakeCodex(t, protocol), "app-server"}, t.TempDir(), os.Environ())
	want := []quota.Window{{Name: "5-hour", Used: 91, Resets: time.Unix(1794747600, 0)}, {Name: "weekly", Used: 20.5}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("Codex() = %v, %v, want %v", got, err, want)
	}
	if w := quota.Above(got, 90); w == nil || w.String() != "91% of the 5-hour quota is used" {
		t.Errorf("above 90%%: %v", w)
	}
	if w := quota.Above(got, 92); w != nil {
		t.Errorf("above 92%%: %v", w)
	}
}

func TestACodexThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"exit 3": "the server ended without an answer",
		"echo '{\"id\":1,\"error\":{\"message\":\"not logged in\"}}'; sleep 600":                        "not logged in",
		"while read -r line; do echo '{\"id\":1,\"result\":{}}'; echo '{\"id\":2,\"result\":{}}'; done": "the answer contains no limits",
		"head -c 5000000 /dev/zero | tr '\\0' x":                                                        "token too long",
	} {
		_, err := quota.Codex(testwait.Context(t), []string{fakeCodex(t, script), "app-server"}, t.TempDir(), os.Environ())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "app-server") {
			t.Errorf("%q: %v, want %q", script, err, want)
		}
	}
	if _, err := quota.Codex(testwait.Context(t), []string{"/no/such/codex", "app-server"}, "", nil); err == nil {
		t.Error("a codex that is not there was asked")
	}
}

const status = `{"session_id":"x","rate_limits":{"five_hour":{"used_percentage":23.5,"resets_at":1794747600},"seven_day":{"used_percentage":95,"resets_at":1795000000}}}`

func TestTheStatusLineIsRecorded(t *testing.T) {
	t.Parallel()
	windows, err := quota.ParseStatusLine([]byte(status))
	want := []quota.Window{{Name: "5-hour", Used: 23.5, Resets: time.Unix(1794747600, 0)}, {Name: "weekly", Used: 95, Resets: time.Unix(1795000000, 0)}}
	if err != nil || !reflect.DeepEqual(windows, want) {
		t.Fatalf("ParseStatusLine() = %v, %v", windows, err)
	}
	if none, err := quota.ParseStatusLine([]byte(`{"session_id":"x"}`)); err != nil || len(none) > 0 {
		t.Errorf("without limits: %v, %v", none, err)
	}
	if _, err := quota.ParseStatusLine([]byte(`[]`)); err == nil {
		t.Error("a list was taken for a status")
	}
	dir := filepath.Join(t.TempDir(), "quota")
	if none, err := quota.Load(dir, "me", time.Unix(0, 0)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing was recorded: %v, %v", none, err)
	}
	if err := quota.Save("", "me", windows); err == nil || !strings.Contains(err.Error(), "set HOME") {
		t.Errorf("without a home folder: %v", err)
	}
	if err := quota.Save(dir, "me", windows); err != nil {
		t.Fatal(err)
	}
	if got, err := quota.Load(dir, "me", time.Unix(1794747600, 0)); err != nil || len(got) != 1 || got[0].Used != 95 {
		t.Errorf("after the reset of one: %v, %v", got, err)
	}
	for _, account := range []string{"", "../x", "a/b", strings.Repeat("x", 200)} {
		if err := quota.Save(dir, account, windows); err == nil {
			t.Errorf("the account %q was taken for a name", account)
		}
	}
	path := filepath.Join(dir, "me.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := quota.Load(dir, "me", time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("a damaged file: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // that is refused
		t.Fatal(err)
	}
	if _, err := quota.Load(dir, "me", time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "other users can write") {
		t.Errorf("a file that other users can write: %v", err)
	}
}
