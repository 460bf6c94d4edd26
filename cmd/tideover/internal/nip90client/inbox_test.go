package nip90client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

func TestAnInboxGivesEachEventOnceInTheOrderOfTimes(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	inbox := nip90client.NewInbox(nip90client.Answers(d.request))
	first, second, result := d.feedback(1, "processing", "one"), d.feedback(2, "processing", "two"), d.result(2, "success", "2")
	for _, e := range []*nostr.Event{result, second, first, second, result, first} {
		if err := inbox.Put(e); err != nil {
			t.Fatalf("Put(%v) = %v", e.ID, err)
		}
	}
	select {
	case <-inbox.Arrived():
	default:
		t.Error("Arrived has no value although an event arrived")
	}
	const want = "feedback processing one; feedback processing two; result success "
	if got, missed := inbox.Take(); messages(got) != want || missed != 0 {
		t.Errorf("Take() = %q, %d missed, want %q", messages(got), missed, want)
	}
	if got, _ := inbox.Take(); len(got) != 0 {
		t.Errorf("the second Take() = %q, want nothing", messages(got))
	}
	_ = inbox.Put(first)
	if got, _ := inbox.Take(); len(got) != 0 {
		t.Errorf("after the same event again Take() = %q, want nothing", messages(got))
	}
}

func TestAnInboxTakesOnlyTheWordOfTheProvider(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	truth := d.result(1, "success", "2")
	forged, other := *truth, *truth
	forged.Sig = d.result(1, "success", "3").Sig
	other.Content = "5"
	elsewhere := d.result(1, "success", "2")
	elsewhere.Tags = nostr.Tags{{"e", d.provider.PublicKey()}}
	if err := elsewhere.Sign(d.provider); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		e    *nostr.Event
		want error
	}{
		{"a signature that is not the author's", &forged, nostr.ErrSignature},
		{"an answer of another author", d.by(newKey(t), 6900, 1, "3"), nil},
		{"another request", elsewhere, nil},
		{"another kind", d.answer(6901, 1, "3"), nil},
	} {
		inbox := nip90client.NewInbox(nip90client.Answers(d.request))
		if err := inbox.Put(c.e); !errors.Is(err, c.want) {
			t.Errorf("%s: Put = %v, want %v", c.name, err, c.want)
		}
		if err := inbox.Put(truth); err != nil {
			t.Errorf("%s, and then the truth: Put = %v", c.name, err)
		}
		if got, _ := inbox.Take(); len(got) != 1 || got[0].Content != "2" {
			t.Errorf("%s: Take() = %q, want the truth", c.name, messages(got))
		}
	}
}

func TestAFloodLeavesRoomForTheResult(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	inbox := nip90client.NewInbox(nip90client.Answers(d.request))
	inbox.Limit(2, 1)
	for i := range 3 {
		if err := inbox.Put(d.feedback(1, "processing", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if err := inbox.Put(d.result(2, dvm.StatusSuccess, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	const want = "feedback processing 0; feedback processing 1; result success "
	if got, missed := inbox.Take(); messages(got) != want || missed != 2 {
		t.Errorf("Take() = %q, %d missed; want %q, 2 missed", messages(got), missed, want)
	}
}

func TestWhatAnybodyCanPublishIsNotTheFaultOfARelay(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	w := &nip90client.Watch{Kinds: []int{5900}}
	for _, tags := range []nostr.Tags{nil, {{"e"}}, {{"e", "abc"}}} {
		inbox := nip90client.NewInbox(w.Filters()...)
		e := &nostr.Event{Kind: dvm.KindFeedback, CreatedAt: d.request.CreatedAt, Tags: tags}
		if err := e.Sign(d.provider); err != nil {
			t.Fatal(err)
		}
		if err := inbox.Put(e); err != nil {
			t.Errorf("Put of feedback with the tags %v = %v", tags, err)
		}
		if got, missed := inbox.Take(); len(got) != 0 || missed != 0 {
			t.Errorf("Take() = %q, %d missed, want nothing", messages(got), missed)
		}
		e.Sig = d.request.Sig
		if err := inbox.Put(e); !errors.Is(err, nostr.ErrSignature) {
			t.Errorf("Put of a forged one = %v", err)
		}
	}
}

func TestAnInboxIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	inbox := nip90client.NewInbox(nip90client.Answers(d.request))
	inbox.LimitBytes(40 << 10)
	put := func(events ...*nostr.Event) {
		for _, e := range events {
			if err := inbox.Put(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	long := strings.Repeat("x", 10<<10)
	for _, round := range []string{"first", "second"} { // after Take, the inbox has room again
		for _, end := range []string{"1", "2", "3"} {
			put(d.feedback(1, "processing", long+round+end))
		}
		put(d.result(2, "success", long+round))
		if got, missed := inbox.Take(); len(got) != 3 || got[2].Type != "result" || missed != 1 {
			t.Errorf("%s: Take() = %d entries, %d missed; want two of feedback, the result, and 1 missed", round, len(got), missed)
		}
	}
}
