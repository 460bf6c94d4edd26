package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

func TestNotifiersAreReadAsTheyAreMeant(t *testing.T) {
	cfg := full(t)
	phone, ops, hook, mail, desktop := cfg.Notifiers["phone"], cfg.Notifiers["ops"], cfg.Notifiers["hook"], cfg.Notifiers["mail"], cfg.Notifiers["desktop"]
	reveal := func(s *template.SecretText) string {
		v, err := s.Resolve(cfg.Secrets())
		if err != nil {
			t.Fatal(err)
		}
		return v.Reveal()
	}
	argv, err := desktop.Argv(map[string]any{"title": "T", "text": "a\x00b"})
	if err != nil {
		t.Fatal(err)
	}
	body, ok, err := hook.Body(map[string]any{"title": `a "b"`}, cfg.Secrets())
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	_, templated, _ := phone.Body(nil, cfg.Secrets())
	for _, c := range []struct{ what, got, want string }{
		{"kinds", fmt.Sprint(phone.Kind, ops.Kind, hook.Kind, mail.Kind, desktop.Kind), fmt.Sprint("ntfy", "slack", "webhook", "email", "run")},
		{"on", fmt.Sprint(phone.On), "[gave-up waiting>30m resumed]"},
		{"default on", fmt.Sprint(mail.On), "[gave-up dead-letter start-refused]"},
		{"at most", phone.AtMost.String(), "5/h"},
		{"default at most", ops.AtMost.String(), ""},
		{"dedupe", fmt.Sprint(phone.Dedupe, ops.Dedupe, hook.Dedupe), "0s 1h0m0s 10m0s"},
		{"timeout", fmt.Sprint(phone.Timeout, ops.Timeout), "5s 10s"},
		{"policy", phone.Policy.String(), cfg.Policies["api"].String()},
		{"default policy", ops.Policy.String(), "exponential(2s..5m) jitter=full attempts=unlimited total-timeout=1d"},
		{"ntfy", fmt.Sprintf("%v %s %s %v", phone.URL, reveal(phone.Token), phone.Priority, phone.Tags), "https://ntfy.sh/my-topic hook-PLANTED-2 high [rotating_light tideover]"},
		{"slack", fmt.Sprint(ops.URL, " ", reveal(ops.URL)), "${env:SLACK_WEBHOOK} https://hooks.slack.com/services/PLANTED-4"},
		{"method", hook.Method, "PUT"},
		{"headers", hook.Headers[0].Name + reveal(hook.Headers[0].Value), "AuthorizationBearer hook-PLANTED-2"},
		{"body", body.Reveal(), `{"text": "a \"b\"", "key": "hook-PLANTED-2"}`},
		{"no body", fmt.Sprint(templated), "false"},
		{"email", fmt.Sprintf("%v %v %s %s", mail.Email.To, mail.Email.From, mail.Email.Server, mail.Email.TLS), `[<me@example.com> "Ops" <ops@example.com>] <tideover@example.com> mail.example.com:587 starttls`},
		{"login", reveal(mail.Email.Username) + ":" + reveal(mail.Email.Password), "me:token-from-the-file-PLANTED"},
		{"argv", fmt.Sprintf("%q", argv), `["notify-send" "T" "ab"]`},
		{"env", desktop.Env[0].Name + reveal(desktop.Env[0].Value), "DISPLAY:0"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestAuditIsReadAsItIsMeant(t *testing.T) {
	a := full(t).Audit
	if !strings.HasSuffix(a.File, "testdata/audit.jsonl") || a.MaxSize != 1<<20 || a.Keep != 3 || a.Off {
		t.Errorf("Audit = %+v", a)
	}
	for text, want := range map[string]config.Audit{
		"":                                {File: "/d/audit.jsonl", MaxSize: 10e6, Keep: 5},
		"audit:\n":                        {File: "/d/audit.jsonl", MaxSize: 10e6, Keep: 5},
		"audit: {off: true, keep: 0}\n":   {File: "/d/audit.jsonl", MaxSize: 10e6, Off: true},
		"audit: {file: ~/a, keep: 2}\n":   {File: "/home/me/a", MaxSize: 10e6, Keep: 2},
		"audit: {file: a/b.jsonl}\n":      {File: "/etc/a/b.jsonl", MaxSize: 10e6, Keep: 5},
		"audit: {max-size: 64KiB}\n":      {File: "/d/audit.jsonl", MaxSize: 64 << 10, Keep: 5},
		"audit: {off: false}\n":           {File: "/d/audit.jsonl", MaxSize: 10e6, Keep: 5},
		"audit: {file: /var/log/a, }\n":   {File: "/var/log/a", MaxSize: 10e6, Keep: 5},
		"audit: {max-size: 1, keep: 1}\n": {File: "/d/audit.jsonl", MaxSize: 1, Keep: 1},
	} {
		data := []byte("version: 1\nserver: {data: /d}\n" + text)
		cfg, err := config.Load(config.Source{Path: "/etc/tideover.yaml", Data: data, Environ: environ})
		if err != nil || cfg.Audit != want {
			t.Errorf("%q: %+v, %v, want %+v", text, cfg.Audit, err, want)
		}
	}
}

func TestNotifySectionMayBeEmpty(t *testing.T) {
	cfg, err := config.Load(config.Source{Path: "x.yaml", Data: []byte("version: 1\nnotify:\n"), Environ: environ})
	if err != nil || len(cfg.Notifiers) != 0 {
		t.Errorf("Load = %v, %v", cfg, err)
	}
}

func TestMessageFieldsAreSorted(t *testing.T) {
	if f := notify.MessageFields(); len(f) != 15 || !slices.IsSorted(f) {
		t.Errorf("MessageFields() = %v", f)
	}
}

// FuzzTrigger parses random texts. An accepted trigger must be the same after String and
// ParseTrigger.
func FuzzTrigger(f *testing.F) {
	for _, s := range []string{"gave-up", "waiting>30m", "waiting > 1d12h", "waiting>0.5s", "waiting>1ns", "resumed>1m", ">", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := notify.ParseTrigger(s)
		if err != nil {
			return
		}
		b, err := notify.ParseTrigger(a.String())
		if err != nil || a != b || a.Over < 0 || a.Over > 0 && a.Event != "waiting" {
			t.Fatalf("ParseTrigger(%q) = %+v; %q came back as %+v, %v", s, a, a, b, err)
		}
	})
}

// FuzzRate parses random texts. An accepted rate must be the same after String and
// ParseRate.
func FuzzRate(f *testing.F) {
	for _, s := range []string{"5/h", "1000/s", "007/d", "0/h", "5/w", "/", "5", "-1/h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := notify.ParseRate(s)
		if err != nil {
			return
		}
		b, err := notify.ParseRate(a.String())
		if err != nil || a != b || a.N < 1 || a.N > notify.MaxRate || a.Per < time.Second {
			t.Fatalf("ParseRate(%q) = %+v; %q came back as %+v, %v", s, a, a, b, err)
		}
	})
}
