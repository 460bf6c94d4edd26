package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/secret"
)

const planted = "s3cr3t-PLANTED-value"

// holder has secrets in every position that fmt treats differently.
type holder struct {
	Public  secret.String
	Pointer *secret.String
	Map     map[string]secret.String
	private secret.String
	nested  struct{ deep []secret.String }
}

func held() holder {
	s := secret.New(planted)
	h := holder{Public: s, Pointer: &s, Map: map[string]secret.String{"k": s}, private: s}
	h.nested.deep = []secret.String{s}
	return h
}

func TestEveryVerbPrintsTheMask(t *testing.T) {
	for verb := rune('A'); verb <= 'z'; verb++ {
		for _, flags := range []string{"", "+", "#", "-", " ", "0", "30", ".3", "+#30.40"} {
			if strings.ContainsRune("Tpw", verb) || verb > 'Z' && verb < 'a' {
				continue // the type, the address and a wrong verb, answered by fmt itself
			}
			format := "%" + flags + string(verb)
			if got := fmt.Sprintf(format, secret.New(planted)); got != secret.Mask {
				t.Errorf("Sprintf(%q) = %q, want %q", format, got, secret.Mask)
			}
			for _, v := range []any{held(), new(held()), []any{held()}} {
				if got := fmt.Sprintf(format, v); leaks(got) {
					t.Errorf("Sprintf(%q, %T) = %q", format, v, got)
				}
			}
		}
	}
}

func leaks(s string) bool {
	return strings.Contains(s, planted) || strings.Contains(strings.ToLower(s), fmt.Sprintf("%x", planted))
}

func TestEncodersWriteTheMask(t *testing.T) {
	s := secret.New(planted)
	if got := s.String() + s.GoString() + fmt.Sprint(s) + fmt.Sprint(&s); got != strings.Repeat(secret.Mask, 4) {
		t.Errorf("printed %q", got)
	}
	h := held()
	for name, encode := range map[string]func() ([]byte, error){
		"text":    s.MarshalText,
		"JSON":    func() ([]byte, error) { return json.Marshal(h) },
		"JSONkey": func() ([]byte, error) { return json.Marshal(map[string]any{"a": h, "b": &s}) },
		"YAML": func() ([]byte, error) { // the method that YAML encoders call; the tests of config use one
			text, err := s.MarshalYAML()
			return fmt.Append(nil, text), err
		},
		"slog": func() ([]byte, error) {
			var b bytes.Buffer
			for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&b, nil)), slog.New(slog.NewJSONHandler(&b, nil))} {
				log.Info("x", "secret", s, "holder", h, "pointer", &h, slog.Group("g", "s", s))
			}
			return b.Bytes(), nil
		},
	} {
		got, err := encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if leaks(string(got)) || !bytes.Contains(got, []byte(secret.Mask)) {
			t.Errorf("%s = %s", name, got)
		}
	}
}

func TestOnlyRevealReturnsTheValue(t *testing.T) {
	s := secret.New(planted)
	if got := s.Reveal(); got != planted {
		t.Errorf("Reveal() = %q, want %q", got, planted)
	}
	if !s.Equal(planted) || s.Equal(planted+"x") || s.Equal("") || s.IsZero() {
		t.Error("Equal or IsZero is wrong about a secret")
	}
	var zero secret.String
	if !zero.IsZero() || zero.Reveal() != "" || zero.String() != secret.Mask {
		t.Error("the zero String is not the empty secret")
	}
}
