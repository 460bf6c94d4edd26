package notify_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testfile"
)

// TestTheJSONOfAMessageIsTheGoldenOne checks the JSON that receivers rely on. Fields may be
// added to it but not changed.
func TestTheJSONOfAMessageIsTheGoldenOne(t *testing.T) {
	m := message()
	m.Wait, m.Until = time.Hour, at.Add(time.Hour)
	m.Delivered, m.Note = []string{"me@example.com"}, "a template failed"
	got, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	testfile.Golden(t, "testdata/message.json", got)
	var back notify.Message
	if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("it came back as %+v, %v", back, err)
	}
}

func TestTheLoaderKnowsTheFieldsOfAMessage(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(message().Fields())), notify.MessageFields(); !slices.Equal(got, want) {
		t.Errorf("Fields() has %v, the loader allows %v", got, want)
	}
}

func TestTheLoaderKnowsTheEvents(t *testing.T) {
	for _, e := range []notify.Event{notify.GaveUp, notify.Waiting, notify.Resumed, notify.BreakerOpen, notify.Recovered, notify.DeadLetter, notify.Succeeded} {
		trigger, err := notify.ParseTrigger(string(e))
		if err != nil || !notify.Wants([]notify.Trigger{trigger}, notify.Message{Event: e}) {
			t.Errorf("ParseTrigger(%q) = %v, %v, or it is not wanted", e, trigger, err)
		}
	}
}

// Keys of known forms are masked, also if no setting has them.
func TestKeysInTheLastLineAreMasked(t *testing.T) {
	t.Parallel()
	const key = "sk-ant-api03-Abcdefghijkl0123456789" //nolint:gosec // not a key
	m := notify.Message{Title: "todo gave up", Text: "last: invalid key " + key, Line: "ANTHROPIC_API_KEY=" + key}.Without(new(secret.Redactor))
	if m.Text != "last: invalid key "+secret.Mask || m.Line != "ANTHROPIC_API_KEY="+secret.Mask {
		t.Errorf("the message is %+v", m)
	}
}
