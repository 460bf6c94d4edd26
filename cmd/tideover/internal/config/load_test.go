package config_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/testfile"
)

// environ is the environment with which all tests load files. Every secret in it contains
// the word PLANTED.
var environ = []string{
	"HOME=/home/me", "FETCH_TOKEN=fetch-PLANTED-1", "HOOK=hook-PLANTED-2", "EMPTY=",
	"HOOK_URL=https://example.com/PLANTED-3", "TIDEOVER_ATTEMPT=1",
	"SLACK_WEBHOOK=https://hooks.slack.com/services/PLANTED-4",
	"NOSTR_KEY=" + nostrKey,
	"NATS_URL=nats://me:nats-PLANTED-9@a.example", "PROVIDER_KEY=provider-PLANTED-5", "SPARE_KEY=spare-PLANTED-6", "TWO_LINES=lines-PLANTED-7\nlines-PLANTED-8",
	"ADA=token-of-ada-PLANTED", "WALL=token-of-the-wall-PLANTED", "CALLBACKS=key-of-the-callback-urls-PLANTED",
}

// nostrKey and nostrSecret are the same secret key in two forms. It can't contain the word
// PLANTED, because its characters are restricted.
const (
	nostrKey    = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa"
	nostrSecret = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
)

// Public keys of two customers. The first is in both forms.
const (
	customer = "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d"
	npub     = "npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6"
	another  = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e"
)

// planted reports whether a text contains one of the secrets of environ.
func planted(text string) bool {
	lower := strings.ToLower(text)
	return strings.Contains(text, "PLANTED") || strings.Contains(lower, nostrKey) || strings.Contains(lower, nostrSecret)
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
			if planted(err.Error()) {
				t.Errorf("the error has the secret: %v", err)
			}
			var problems strictyaml.FieldErrors
			if !errors.As(err, &problems) {
				t.Errorf("the error is a %T", err)
			}
			for i := 1; i < len(problems); i++ {
				if problems[i].Line < problems[i-1].Line {
					t.Errorf("line %d is reported after line %d", problems[i].Line, problems[i-1].Line)
				}
			}
			testfile.Golden(t, strings.TrimSuffix(file, ".yaml")+".txt", filepath.ToSlash(err.Error())+"\n")
		})
	}
}
