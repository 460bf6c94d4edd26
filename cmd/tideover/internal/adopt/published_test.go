//go:build published

package adopt

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
)

// assistantsVar is the variable with a folder that has the programs of the published assistants.
const assistantsVar = "TIDEOVER_TEST_ASSISTANTS"

// limitedAPI answers every request of an assistant with a limit that ends at reset.
func limitedAPI(t *testing.T, reset time.Time) (url string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end := fmt.Sprint(reset.Unix())
		w.Header().Set("Content-Type", "application/json")
		for name, value := range map[string]string{
			"Anthropic-Ratelimit-Unified-Status": "rejected", "Anthropic-Ratelimit-Unified-Reset": end, "Anthropic-Ratelimit-Unified-Representative-Claim": "five_hour",
			"X-Should-Retry": "false", "X-Codex-Primary-Used-Percent": "100", "X-Codex-Primary-Window-Minutes": "300", "X-Codex-Primary-Reset-At": end,
		} {
			w.Header().Set(name, value)
		}
		kind, status := "rate_limit_error", http.StatusTooManyRequests
		switch {
		case strings.HasSuffix(r.URL.Path, "/responses"):
			kind = "usage_limit_reached"
		case strings.HasSuffix(r.URL.Path, "/chat/completions"):
			status = http.StatusForbidden // else opencode repeats the request for a minute
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":"Usage limit reached. Your limit will reset at %s","plan_type":"plus","resets_at":%s}}`,
			kind, reset.Format(time.DateTime), end)
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// TestRecordsOfPublishedAssistants runs the published assistants against an API on loopback that
// answers with a limit, and reads what they have recorded.
func TestRecordsOfPublishedAssistants(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"claude":   {"-p", "Build it", "--permission-mode", "acceptEdits"},
		"codex":    {"exec", "--skip-git-repo-check", "--sandbox", "workspace-write", "Build it"},
		"opencode": {"run", "Build it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(os.Getenv(assistantsVar), name)
			if _, err := os.Stat(program); err != nil {
				t.Fatalf("no program %s in the folder $%s", name, assistantsVar)
			}
			h := newHome(t)
			reset := time.Now().Add(2 * time.Hour).Truncate(time.Minute)
			url := limitedAPI(t, reset)
			h.write(filepath.Join(h.path, ".codex", "config.toml"), `model = "m"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "`+url+`/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
request_max_retries = 0
stream_max_retries = 0
`)
			h.write(filepath.Join(h.path, ".config", "opencode", "opencode.json"), `{"autoupdate":false,"share":"disabled","model":"fake/m","small_model":"fake/m","provider":{"fake":{
				"npm":"@ai-sdk/openai-compatible","name":"fake","options":{"baseURL":"`+url+`/v1","apiKey":"x"},"models":{"m":{"name":"m"}}}}}`)
			ctx, cancel := context.WithCancel(testwait.Context(t))
			defer cancel()
			cmd := exec.CommandContext(ctx, program, args...)
			cmd.Dir = h.shop
			cmd.Env = []string{
				"HOME=" + h.path, "PATH=/usr/bin:/bin", "PWD=" + h.shop, "FAKE_KEY=x", "ANTHROPIC_BASE_URL=" + url, "CLAUDE_CODE_OAUTH_TOKEN=invented",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1",
			}
			out, _ := cmd.CombinedOutput() // it ends with a failure, because of the limit
			found, err := h.reader().Find(time.Now(), name)
			if err != nil || len(found.Sessions) != 1 || len(found.Problems) != 0 {
				t.Fatalf("found %+v, %v; the output is %s", found, err, out)
			}
			s := found.Sessions[0]
			if s.LeftAlone != "" || s.Dir != h.shop || s.Reset.Truncate(time.Minute).Unix() != reset.Unix() || !strings.Contains(strings.Join(s.Command, " "), s.ID) {
				t.Errorf("%+v, want the reset at %v", s, reset)
			}
		})
	}
}
