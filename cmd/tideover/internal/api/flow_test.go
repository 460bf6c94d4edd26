//go:build unix

package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/retry"
)

// TestRunsOfFlows reads runs of a workflow that is code. The validator of the test server compares
// the responses with the description.
func TestRunsOfFlows(t *testing.T) {
	t.Parallel()
	w := engine.MustFlow("coded", func(f *engine.Flow, in job) (string, error) {
		engine.SetStatus(f, "packing")
		for name, value := range map[string]string{"text": in.Text, "all": "a, b=c"} {
			if err := engine.SetTag(f, name, value); err != nil {
				return "", err
			}
		}
		_, err := engine.Collect(f, "hold", []int{1, 2}, func(_ context.Context, i int) (int, error) {
			if i == 2 {
				return 0, retry.Permanent(engine.Coded("gone", fmt.Errorf("item %d", i)))
			}
			return i, nil
		})
		if err != nil {
			return "", err
		}
		return "", engine.Sleep(f, "night", time.Hour)
	}, engine.Function(engine.Version("v7")))
	f := serve(t, func(_ *fixture, c *engine.Config) { c.Workflows = append(c.Workflows, w) })
	ids := map[string]string{"x": f.start("coded", `{"text": "x"}`), "y": f.start("coded", `{"text": "y"}`)}
	f.listed("waiting", 2)
	c := f.client()
	for _, tt := range []struct {
		tags []string
		want int
	}{{[]string{"text=x"}, 1}, {[]string{"all=a, b=c"}, 2}, {[]string{"all=a, b=c", "text=y"}, 1}, {[]string{"text=x", "text=y"}, 0}, {nil, 2}} {
		page, err := c.List(t.Context(), control.Filter{Tags: tt.tags})
		if err != nil || len(page.Runs) != tt.want {
			t.Errorf("List(%q) has %d runs, want %d: %v", tt.tags, len(page.Runs), tt.want, err)
		}
		for _, run := range page.Runs {
			if run.Status != "packing" || run.Tags["all"] != "a, b=c" || run.Step != "night" {
				t.Errorf("the list has the status %q, the tags %v and the step %q", run.Status, run.Tags, run.Step)
			}
		}
	}
	run, err := c.Get(t.Context(), ids["x"])
	if err != nil {
		t.Fatal(err)
	}
	if run.Version != "v7" || run.Operations.Total != 4 || run.Steps[1].Items.Failed != 1 || run.Steps[3].Code != "gone" {
		t.Errorf("the run: %+v", run)
	}
	for _, tag := range []string{"", "text", "=x", "text="} {
		if a := f.ask(false, "GET", "/api/v1/runs?tag="+url.QueryEscape(tag), ""); a.status != http.StatusBadRequest || a.problem(t).Field != "tag" {
			t.Errorf("the tag %q: %d %s", tag, a.status, a.text)
		}
	}
	for body, status := range map[string]int{`{"filter": {"tag": []}}`: 400, `{"filter": {"tag": ["text"]}}`: 400, `{"filter": {"tag": ["text=y"]}}`: 200} {
		if a := f.ask(false, "POST", "/api/v1/runs/cancel", body); a.status != status {
			t.Errorf("cancel %s: %d %s", body, a.status, a.text)
		}
	}
	f.listed("canceled", 1)
	f.listed("waiting", 1)
	if done, err := f.engine.Get(t.Context(), ids["y"]); err != nil || done.State != "canceled" {
		t.Errorf("the run with the tag is %v: %v", done, err)
	}
}
