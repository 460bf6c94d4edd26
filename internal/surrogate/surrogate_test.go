package surrogate_test

import (
	"fmt"
	"testing"

	"github.com/tideover/tideover/internal/surrogate"
)

func TestNext(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``: "-1 0", `"a"`: "-1 0", `"\u00e9"`: "-1 0", `"\ud83d\ude00"`: "-1 0", `"\\ud800"`: "-1 0", `"\ufffd"`: "-1 0", `"a\\"`: "-1 0",
		`"\\\ud800"`: "3 d800", `"\ud800"`: "1 d800", `"a\uDBFFb"`: "2 dbff", `"\udc00\ud800"`: "1 dc00",
		`"\ud800\ud800\udc00"`: "1 d800", `"\ud800\n"`: "1 d800", `"\ud83d\ude00\udfff"`: "13 dfff",
		`["\ud83d\ude00", {"a": "\udfff"}]`: "24 dfff",
	} {
		at, unit := surrogate.Next([]byte(text))
		if got := fmt.Sprintf("%d %x", at, unit); got != want {
			t.Errorf("Next(%s) = %s, want %s", text, got, want)
		}
	}
}
