package dvm_test

import (
	"fmt"
	"testing"

	"github.com/tideover/tideover/nostr/dvm"
)

func TestAnAnnouncementNamesEachKindOnce(t *testing.T) {
	t.Parallel()
	a := dvm.Announcement{Identifier: "mine", Kinds: []int{5901, 5900, 5901}, Name: `"<b>"`}
	e := a.Event(morning)
	if err := e.Sign(ours); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintln(e.Kind, e.Tags, e.Content), `31990 [[d mine] [k 5900] [k 5901]] {"name":"\"<b>\""}`+"\n"; got != want || e.CreatedAt != morning.Unix() {
		t.Errorf("the announcement is %s at %d, want %s", got, e.CreatedAt, want)
	}
	gone := dvm.WithdrawAnnouncement(e, morning)
	if got, want := fmt.Sprint(gone.Kind, gone.Tags), fmt.Sprintf("5 [[a 31990:%s:mine] [e %s] [k 31990]]", ours.PublicKey(), e.ID); got != want {
		t.Errorf("the withdrawal is %s, want %s", got, want)
	}
	if empty := (&dvm.Announcement{}).Event(morning); empty.Content != "{}" {
		t.Errorf("the content without a name is %s", empty.Content)
	}
}
