package config_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

var update = flag.Bool("update", false, "write the golden files")

// environ is what all tests load with. Every secret has PLANTED in it.
var environ = []string{
	"HOME=/home/me", "FETCH_TOKEN=fetch-PLANTED-1", "HOOK=hook-PLANTED-2", "EMPTY=",
	"HOOK_URL=https://example.com/PLANTED-3", "TIDEOVER_ATTEMPT=1",
	"SLACK_WEBHOOK=https://hooks.slack.com/services/PLANTED-4",
	"NATS_URL=nats://me:nats-PLANTED-9@a.example", "PROVIDER_KEY=provider-PLANTED-5", "SPARE_KEY=spare-PLANTED-6", "TWO_LINES=lines-PLANTED-7\nlines-PLANTED-8",
}

// golden compares with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant (%s)\n%s", got, name, want)
	}
}

func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatalf("Glob: %d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			cfg, err := config.Load(config.Source{Path: file, Environ: environ})
			if err == nil || cfg != nil {
				t.Fatalf("Load(%s) = %v, %v, want an error", file, cfg, err)
			}
			if strings.Contains(err.Error(), "PLANTED") {
				t.Errorf("the error has the secret: %v", err)
			}
			var problems config.FieldErrors
			if !errors.As(err, &problems) {
				t.Errorf("the error is a %T", err)
			}
			for i := 1; i < len(problems); i++ {
				if problems[i].Line < problems[i-1].Line {
					t.Errorf("line %d is reported after line %d", problems[i].Line, problems[i-1].Line)
				}
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", filepath.ToSlash(err.Error())+"\n")
		})
	}
}
