package gateway

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestI10WhatWasLearnedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "new", "recovery.json")
		keep := func(o *Options) { o.RecoveryFile = path }
		u := newTestServer(t, says("ok"))
		specs := []Spec{spec(t, "it", Anthropic, u.URL), spec(t, "other", Anthropic, u.URL)}
		r := newRig(t, specs, keep)
		if err := r.recovery.save(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("there is a file (%v), and nothing was learned", err)
		}
		takeDown(r, "it")
		eventually(t, "it is back", func() bool { return r.get("/p/it/x").code == 200 })
		if err := r.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the file: %v, %v, want one for us alone", info, err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
		outages := func(r *rig, name string) float64 {
			return r.table.Load().providers[name].upstream.recovery.Predict(0).Outages
		}
		again := newRig(t, specs, keep)
		if n := outages(again, "it"); n != outages(r, "it") || n == 0 {
			t.Errorf("it knows of %v outages, want %v", n, outages(r, "it"))
		}
		if n := outages(again, "other"); n != 0 {
			t.Errorf("the other knows of %v outages", n)
		}
		elsewhere := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL+"/v2")}, keep)
		if n := outages(elsewhere, "it"); n != 0 {
			t.Errorf("another destination knows of %v outages", n)
		}
	})
}

func TestADamagedMemoryIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{"", "{", `{"version":7}`, `{"version":1,"providers":{"it":{"recovery":{"version":1}}}}`, `{"version":1,"providers":{"it":null}}`} {
			path := filepath.Join(t.TempDir(), "recovery.json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, []Spec{spec(t, "it", Anthropic, "http://localhost:1")}, func(o *Options) { o.RecoveryFile = path })
			if output := r.output(); !strings.Contains(output, "starting without them") && !strings.Contains(text, "null") {
				t.Errorf("%q: the log does not mention it: %s", text, output)
			}
		}
	})
}

func TestRunKeepsWhatWasLearned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recovery.json")
	g, err := New([]Spec{spec(t, "it", Anthropic, "http://localhost:1")}, Options{RecoveryFile: path})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		g.recovery.touch()
		time.Sleep(saveEvery + time.Second)
		synctest.Wait()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("not kept: %v", err)
		}
		_ = os.Remove(path)
		g.recovery.touch()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("not kept at the end: %v", err)
		}
	})
}
