package nip90client_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
)

func TestWhatIsReadOfFeedback(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	number := func(n float64) *float64 { return &n }
	for _, c := range []struct {
		name string
		tags nostr.Tags
		text string
		want nip90client.Entry
	}{
		{"a retry", nostr.Tags{{"status", "processing", "Retry 1/3"}, {"retry", "1", "3", "1000"}}, "Retry 1/3",
			nip90client.Entry{Status: "processing", Message: "Retry 1/3", Retry: &nip90client.Retry{Number: 1, Of: 3, Wait: 1000}}},
		{"a retry without a limit", nostr.Tags{{"status", "processing"}, {"retry", "7", "unlimited", "x"}}, "again",
			nip90client.Entry{Status: "processing", Message: "again", Retry: &nip90client.Retry{Number: 7, Of: -1}}},
		{"progress", nostr.Tags{{"status", "processing"}, {"progress", "40"}, {"eta", "12"}}, "",
			nip90client.Entry{Status: "processing", Progress: number(40), ETA: number(12)}},
		{"numbers that are none", nostr.Tags{{"status", "processing"}, {"progress", "NaN"}, {"eta", "-1"}, {"retry", "-1", "3"}}, "",
			nip90client.Entry{Status: "processing"}},
		{"numbers that are too large", nostr.Tags{{"progress", "101"}, {"eta", "1e300"}, {"retry", "1", "99999999999"}}, "",
			nip90client.Entry{}},
		{"content beside the message", nostr.Tags{{"status", "partial", "half"}}, "the half",
			nip90client.Entry{Status: "partial", Message: "half", Content: "the half"}},
		{"money", nostr.Tags{{"status", "payment-required", "pay"}, {"amount", "21000", "lnbc"}}, "",
			nip90client.Entry{Status: "payment-required", Message: "pay", Amount: "21000"}},
		{"a long status", nostr.Tags{{"status", strings.Repeat("é", 100)}}, "",
			nip90client.Entry{Status: strings.Repeat("é", 32) + "…"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := d.answer(7000, 1, c.text, c.tags...)
			got, ok := nip90client.Read(e)
			c.want.Type, c.want.Kind, c.want.ID, c.want.Request, c.want.At = "feedback", 7000, e.ID, d.request.ID, got.At
			c.want.Author, c.want.Customer = nostr.Npub(e.PubKey), nostr.Npub(d.request.PubKey)
			if !ok || !reflect.DeepEqual(got, c.want) {
				t.Errorf("Read = %+v, %v\nwant %+v", got, ok, c.want)
			}
		})
	}
}

func TestWhatIsReadOfAResult(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	for _, c := range []struct {
		name, content string
		tags          nostr.Tags
		status        string
		failure       string // as JSON
	}{
		{"without a status", "2", nil, "success", "null"},
		{"success", `{"error":true}`, nostr.Tags{{"status", "success"}}, "success", "null"},
		{"an error", `{"error":true,"code":"PERMANENT","message":"no","retry":{"attemptNumber":2,"maxRetries":3,"lastError":"no","backoffHistory":[1000,2000]}}`,
			nostr.Tags{{"status", "error"}}, "error", `{"code":"PERMANENT","message":"no","retry":{"attemptNumber":2,"maxRetries":3,"lastError":"no","backoffHistory":[1000,2000]}}`},
		{"an error with odd numbers", `{"code":"TIMEOUT","message":"slow","retry":{"attemptNumber":2,"maxRetries":1e3}}`,
			nostr.Tags{{"status", "error"}}, "error", `{"code":"TIMEOUT","message":"slow"}`},
		{"an error whose retry is a text", `{"code":"TIMEOUT","message":"slow","retry":"no"}`, nostr.Tags{{"status", "error"}}, "error", `{"code":"TIMEOUT","message":"slow"}`},
		{"an error whose message is a list", `{"code":"TIMEOUT","message":["slow"]}`, nostr.Tags{{"status", "error"}}, "error", `{"code":"TIMEOUT","message":""}`},
		{"an error whose code is a number", `{"code":408,"message":"slow"}`, nostr.Tags{{"status", "error"}}, "error", `{"message":"slow"}`},
		{"an error that says nothing", `{"code":408,"message":null}`, nostr.Tags{{"status", "error"}}, "error", `{"message":"{\"code\":408,\"message\":null}"}`},
		{"an unknown status", "2", nostr.Tags{{"status", "finished"}}, "finished", "null"},
		{"an error of another form", "it broke", nostr.Tags{{"status", "error"}}, "error", `{"message":"it broke"}`},
		{"an error that is other JSON", `[1]`, nostr.Tags{{"status", "error"}}, "error", `{"message":"[1]"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := nip90client.Read(d.answer(6900, 1, c.content, c.tags...))
			failure, err := json.Marshal(got.Failure)
			if !ok || err != nil || got.Status != c.status || string(failure) != c.failure || got.Content != c.content {
				t.Errorf("Read = %+v with %s, %v; want %s with %s", got, failure, ok, c.status, c.failure)
			}
		})
	}
}

func TestWhatIsNotOfNIP90IsNotRead(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	none := d.answer(1, 1, "hello")
	if x, ok := nip90client.Read(none); ok {
		t.Errorf("Read of kind 1 = %+v", x)
	}
	for _, tags := range []nostr.Tags{nil, {{"e"}}, {{"e", "abc"}}, {{"e", strings.Repeat("A", 64)}}} {
		e := *d.feedback(1, "processing", "")
		e.Tags = tags
		if x, ok := nip90client.Read(&e); ok {
			t.Errorf("Read with tags %v = %+v", tags, x)
		}
	}
	if x, ok := nip90client.Read(d.request); !ok || x.Type != "request" || x.Request != d.request.ID || x.Content != d.request.Content {
		t.Errorf("Read of a request = %+v, %v", x, ok)
	}
}

func FuzzRead(f *testing.F) {
	d := newDeal(f)
	for _, e := range []*nostr.Event{d.request, d.feedback(1, "processing", "x", nostr.Tag{"retry", "1", "3", "1000"}, nostr.Tag{"progress", "40"}), d.result(1, "error", "{}")} {
		f.Add(e.AppendJSON(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e nostr.Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		x, ok := nip90client.Read(&e)
		if !ok {
			return
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatalf("%+v has no JSON form: %v", x, err)
		}
		if x.Progress != nil && !(*x.Progress >= 0 && *x.Progress <= 100) || x.ETA != nil && *x.ETA < 0 || len(x.Request) != 64 {
			t.Errorf("Read = %s", text)
		}
	})
}
