package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/tideover/tideover/engine/internal/codec"
)

func TestReaderReadsWhatWasAppended(t *testing.T) {
	t.Parallel()
	id := [16]byte{1, 2, 3, 15: 9}
	b := binary.AppendUvarint(nil, 300)
	b = binary.AppendVarint(b, -5)
	b = append(codec.AppendBytes(b, "text"), 7)
	b = append(b, id[:]...)
	r := codec.Reader{Data: b}
	if n, v := r.Number(), r.Varint(); n != 300 || v != -5 {
		t.Errorf("the numbers are %d and %d; want 300 and -5", n, v)
	}
	if text, c, got := r.Bytes(), r.Byte(), r.Array(); string(text) != "text" || c != 7 || got != id {
		t.Errorf("the rest is %q, %d, %x", text, c, got)
	}
	if r.Err != nil || len(r.Data) != 0 {
		t.Errorf("%d bytes are left, %v", len(r.Data), r.Err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add(codec.AppendBytes(nil, "a text of some length"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := codec.Reader{Data: data}
		if v, rest := codec.CutBytes(data); !bytes.Equal(v, r.Bytes()) || !bytes.Equal(rest, r.Data) || (rest == nil) != (r.Err != nil) {
			t.Errorf("CutBytes(%x) = %x, %x; want the rest %x, %v", data, v, rest, r.Data, r.Err)
		}
		for name, read := range map[string]func(*codec.Reader){
			"Uvarint": func(r *codec.Reader) { r.Uvarint() }, "Varint": func(r *codec.Reader) { r.Varint() },
			"Number": func(r *codec.Reader) { r.Number() }, "Bytes": func(r *codec.Reader) { r.Bytes() },
			"Byte": func(r *codec.Reader) { r.Byte() }, "Array": func(r *codec.Reader) { r.Array() },
		} {
			r := codec.Reader{Data: data}
			read(&r)
			if failed := errors.Is(r.Err, codec.ErrEncoding); failed && r.Data != nil || !failed && !bytes.HasSuffix(data, r.Data) {
				t.Errorf("%s of %x leaves %x, %v", name, data, r.Data, r.Err)
			}
		}
	})
}

// FuzzID checks that each text that ParseID accepts is what FormatID returns for the id.
func FuzzID(f *testing.F) {
	for _, text := range []string{"", "01ka3t8zj0vwxyz0123456789a", "7zzzzzzzzzzzzzzzzzzzzzzzzz", "80000000000000000000000000", "01KA3T8ZJ0VWXYZ0123456789A"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := codec.ParseID(text); ok && codec.FormatID(id) != text {
			t.Errorf("%q comes back as %q", text, codec.FormatID(id))
		}
	})
}
