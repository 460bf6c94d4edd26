package config_test

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// TestWhatOnlyLooksLikeASecretIsAccepted uses words that begin like known secrets, and
// references to secrets.
func TestWhatOnlyLooksLikeASecretIsAccepted(t *testing.T) {
	for _, value := range []string{
		"task-runner-of-internationalization-1", "risk-Assessment-2026-final-report", "sk-learn-and-other-things-2", "sk-short", "sk-",
		"tk_focusFollowsMouse", "xox-xox-xox-xox-xox-xox", "ghp_short", "AKIAAAAAAAAAAAAAAAAAAAAAAAAAA", "notAKIAAAAAAAAAAAAAAAAA",
		"the bearer of bad news, and of other things", "Bearer ${env:HOOK}", "bearer {{ .title }}", "Bearer short",
		"https://hooks.slack.com/services/T00000000/B00000000/${env:HOOK}", "https://hooks.slack.com/services/${env:HOOK}",
		"https://discord.com/api/webhooks/123456789012345678/${env:HOOK}", "https://api.telegram.org/bot${env:HOOK}/sendMessage",
		"https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks", "https://me:${env:HOOK}@a.example/x@2x.png?api_key=${env:HOOK}",
		"https://a.example:8080/me:you@elsewhere", "https://${env:HOOK}@a.example:8080",
		"3f786850e387550fdab836ed7e6dc881de23001b", "01K9ZZZZZZZZZZZZZZZZZZZZZZ",
	} {
		text := "version: 1\nnotify: {n: {webhook: 'https://a.example', headers: {X-A: '" + value + "'}, body: '" + value + "'}}\n"
		if strings.HasPrefix(value, "https://") {
			text += "workflows: {w: {steps: [{id: a, http: {get: '" + value + "'}}]}}\n"
		}
		if strings.Contains(value, "{{") {
			text = strings.Replace(text, "headers: {X-A: '"+value+"'}, ", "", 1)
		}
		cfg, err := config.Load(config.Source{Path: "/etc/tideover.yaml", Data: []byte(text), Environ: environ})
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		for _, v := range cfg.Values() {
			if strings.Contains(v.Text, "***") {
				t.Errorf("%q is shown as %q", value, v.Text)
			}
		}
	}
}

func TestASecretInADescriptionIsNotShown(t *testing.T) {
	text := "version: 1\nworkflows: {w: {description: 'uses sk-ant-api03-PLANTEDaBcDeFgHi and ghp_PLANTEDaBcDeFgHiJkL, of course', steps: [{id: a, run: [x]}]}}\n"
	cfg, err := config.Load(config.Source{Path: "/etc/tideover.yaml", Data: []byte(text), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range cfg.Values() {
		if strings.Contains(v.Text, "PLANTED") {
			t.Errorf("%s is shown as %q", v.Path, v.Text)
		}
		if want := "uses *** and ***, of course"; v.Path == "workflows.w.description" && v.Text != want {
			t.Errorf("%s is shown as %q, want %q", v.Path, v.Text, want)
		}
	}
}
