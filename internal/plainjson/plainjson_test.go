package plainjson_test

import (
	"testing"

	"github.com/tideover/tideover/internal/plainjson"
)

func TestMarshal(t *testing.T) {
	t.Parallel()
	got, err := plainjson.Marshal(map[string]string{"a": `<b> & "c"`})
	if want := `{"a":"<b> & \"c\""}`; string(got) != want || err != nil {
		t.Errorf("Marshal() = %s, %v, want %s", got, err, want)
	}
	if _, err := plainjson.Marshal(func() {}); err == nil {
		t.Error("Marshal(func) = nil, want an error")
	}
}
