package enum

import "testing"

type color uint8

func TestName(t *testing.T) {
	names := []string{"red", "green"}
	for c, want := range map[color]string{0: "red", 1: "green", 2: "color(2)"} {
		if got := Name(names, c, "color"); got != want {
			t.Errorf("Name(%d) = %q, want %q", uint8(c), got, want)
		}
	}
}

func TestParse(t *testing.T) {
	names := []string{"red", "green"}
	if got, ok := Parse[color](names, "green"); got != 1 || !ok {
		t.Errorf("Parse(green) = %d, %v, want 1, true", got, ok)
	}
	if got, ok := Parse[color](names, "blue"); got != 0 || ok {
		t.Errorf("Parse(blue) = %d, %v, want 0, false", got, ok)
	}
}
