package nip90client_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

func TestARequestHasWhatProvidersRead(t *testing.T) {
	t.Parallel()
	key, provider := newKey(t), newKey(t).PublicKey()
	ask := nip90client.Ask{
		Kind: 5050, Provider: provider, Task: "Translate", Timeout: 90 * time.Second, Relays: []string{"wss://a.example.com", "wss://b.example.com"},
		Inputs: []nip90client.Input{{Data: "hello", Type: "text"}}, Params: []nip90client.Param{{Name: "lang", Value: "de"}},
	}
	e, err := ask.Event(key, time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Verify(); err != nil {
		t.Error(err)
	}
	want := fmt.Sprintf("[[p %s] [i hello text] [param lang de] [timeout 90] [relays wss://a.example.com wss://b.example.com]]", provider)
	if got := fmt.Sprint(e.Tags); got != want {
		t.Errorf("tags\n%s, want\n%s", got, want)
	}
	r, err := dvm.Parse(e, dvm.Rules{})
	if err != nil || r.Timeout != 90*time.Second || r.Task != "Translate" || r.Kind != 5050 {
		t.Errorf("dvm.Parse = %+v, %v", r, err)
	}
}

func TestARequestThatWouldBeRefusedIsNotMade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*nip90client.Ask)
		want   string
	}{
		{"nothing to do", func(a *nip90client.Ask) { a.Task = "" }, "the task is empty"},
		{"a long task", func(a *nip90client.Ask) { a.Task = strings.Repeat("x", nostr.MaxContent+1) }, "65537 bytes"},
		{"a task that is no text", func(a *nip90client.Ask) { a.Task = "\xff" }, "not UTF-8"},
		{"no kind of request", func(a *nip90client.Ask) { a.Kind = 6900 }, "6900 is not in the range 5000 to 5999"},
		{"half a second", func(a *nip90client.Ask) { a.Timeout = 1500 * time.Millisecond }, "whole seconds"},
		{"less than a second", func(a *nip90client.Ask) { a.Timeout = time.Millisecond }, "not in the range 1s to"},
		{"negative", func(a *nip90client.Ask) { a.Timeout = -time.Second }, "not in the range 1s to"},
		{"too many inputs", func(a *nip90client.Ask) { a.Inputs = make([]nip90client.Input, 120) }, "at most 100"},
		{"more inputs than a result can repeat", func(a *nip90client.Ask) { a.Inputs = make([]nip90client.Input, 95) }, "inputs"},
		{"a long input", func(a *nip90client.Ask) {
			a.Inputs = []nip90client.Input{{Data: strings.Repeat("x", 70<<10)}}
		}, "bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ask := &nip90client.Ask{Kind: 5900, Provider: newKey(t).PublicKey(), Task: "do it"}
			c.change(ask)
			if e, err := ask.Event(newKey(t), time.Now()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Event() = %v, %v, want an error with %q", e, err, c.want)
			}
		})
	}
}

func TestInputs(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a1", 32)
	for _, c := range []struct {
		text string
		want nip90client.Input
		bad  bool
	}{
		{text: "hello, world", want: nip90client.Input{Data: "hello, world", Type: "text"}},
		{text: "a,b,text", want: nip90client.Input{Data: "a,b", Type: "text"}},
		{text: "https://example.com/a?b=1,2,url", want: nip90client.Input{Data: "https://example.com/a?b=1,2", Type: "url"}},
		{text: id + ",event", want: nip90client.Input{Data: id, Type: "event"}},
		{text: id + ",job", want: nip90client.Input{Data: id, Type: "job"}},
		{text: "", bad: true},
		{text: ",text", bad: true},
		{text: "example,url", bad: true},
		{text: "abc,event", bad: true},
		{text: "\xff", bad: true},
	} {
		if got, err := nip90client.ParseInput(c.text); (err != nil) != c.bad || !c.bad && got != c.want {
			t.Errorf("ParseInput(%q) = %+v, %v, want %+v", c.text, got, err, c.want)
		}
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	if p, err := nip90client.ParseParam("a=b=c"); err != nil || p != (nip90client.Param{Name: "a", Value: "b=c"}) {
		t.Errorf("ParseParam(a=b=c) = %+v, %v", p, err)
	}
	for _, text := range []string{"", "a", "=b", "a=\xff"} {
		if p, err := nip90client.ParseParam(text); err == nil {
			t.Errorf("ParseParam(%q) = %+v, want an error", text, p)
		}
	}
}
