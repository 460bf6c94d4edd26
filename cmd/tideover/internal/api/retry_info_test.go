package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/console/control"
)

// TestTheResultOfARunThatTimesOutHasItsRetries has a run whose timeout ends in the middle
// of its third attempt. The result over HTTP must contain the number of that attempt, and
// say that the run timed out.
func TestTheResultOfARunThatTimesOutHasItsRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w, err := engine.NewWorkflow("slow", engine.Step("do", func(ctx context.Context, _ json.RawMessage) (int, error) {
			if calls++; calls < 3 {
				return 0, errors.New("flaky")
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}, engine.Policy("fixed(1s) attempts=5")))
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.Open(t.Context(), engine.Config{Log: new(memlog.Store).Open(), Workflows: []*engine.Workflow{w}, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close(context.Background()) }()
		handler := New(newOptions(admin.Config{Engine: e, Logger: quiet()}))
		ask := func(method, path, body string, into any) {
			t.Helper()
			answer := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), method, Prefix+path, strings.NewReader(body))
			r.Host = "localhost"
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			handler.ServeHTTP(answer, r)
			if err := json.Unmarshal(answer.Body.Bytes(), into); err != nil {
				t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
			}
		}
		var run struct{ ID string }
		ask(http.MethodPost, "runs", `{"workflow":"slow","timeout":10}`, &run)
		var got control.Error
		ask(http.MethodGet, "runs/"+run.ID+"/result?wait=1m", "", &got)
		const want = "timed out after 10s while an attempt ran; the last error: flaky"
		if got.Code != control.CodeDead || got.Outcome == nil || got.Outcome.Retry == nil {
			t.Fatalf("the result: %+v", got)
		}
		if r := got.Outcome.Retry; r.Attempt != 2 || r.MaxRetries != 4 || r.LastError != want || !slices.Equal(r.Backoff, []int64{1000, 1000}) || got.Outcome.LastError != want {
			t.Errorf("the result: last error %q, retry %+v", got.Outcome.LastError, r)
		}
		var info engine.Info
		ask(http.MethodGet, "runs/"+run.ID, "", &info)
		if info.Error != want || info.Attempts != 3 {
			t.Errorf("the run: %d attempts, error %q, want 3 and %q", info.Attempts, info.Error, want)
		}
	})
}
