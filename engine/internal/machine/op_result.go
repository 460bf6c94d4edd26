package machine

import (
	"encoding/binary"
	"iter"
	"strings"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// OpResult is the result of an operation that has ended.
type OpResult struct {
	Number   int
	Name     string // identity: kind, name and key
	Attempts int
	Spent    int   // attempts that count for the policy, as in StepState
	Began    int64 // when the operation was called or its first attempt began
	Ended    int64
	Reason   retry.Reason // why the operation failed; 0 if it succeeded
	Code     string       // code of the failure
	Text     string       // error, if it failed
	Data     []byte       // output, if it succeeded
}

func (o *OpResult) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(o.Number))
	b = codec.AppendBytes(b, o.Name)
	b = binary.AppendUvarint(b, uint64(o.Attempts))
	b = binary.AppendUvarint(b, uint64(o.Spent))
	b = binary.AppendVarint(b, o.Began)
	b = binary.AppendVarint(b, o.Ended-o.Began)
	b = append(b, byte(o.Reason))
	if o.Reason != 0 {
		b = codec.AppendBytes(b, o.Code)
		b = codec.AppendBytes(b, o.Text)
	}
	return codec.AppendBytes(b, o.Data)
}

func (o *OpResult) read(in *codec.Reader) {
	*o = OpResult{Number: in.Number(), Name: string(in.Bytes()), Attempts: in.Number(), Spent: in.Number(), Began: in.Varint()}
	o.Ended = o.Began + in.Varint()
	if o.Reason = retry.Reason(in.Byte()); o.Reason != 0 {
		o.Code, o.Text = string(in.Bytes()), string(in.Bytes())
	}
	o.Data = in.Bytes()
}

// ReadResults yields the results of operations, in the order in which the operations ended. Their
// data shares the memory of the encoded results.
func ReadResults(encoded []byte) iter.Seq[OpResult] {
	return func(yield func(OpResult) bool) {
		for _, o := range resultsAt(encoded) {
			if !yield(o) {
				return
			}
		}
	}
}

// resultsAt is ReadResults that also yields the offset of each result in the encoded ones.
func resultsAt(encoded []byte) iter.Seq2[int, OpResult] {
	return func(yield func(int, OpResult) bool) {
		for in := (codec.Reader{Data: encoded}); len(in.Data) > 0; {
			at := len(encoded) - len(in.Data)
			var o OpResult
			if o.read(&in); in.Err != nil || !yield(at, o) {
				return
			}
		}
	}
}

// EncodeRedo encodes the numbers of the operations that a retry of the run calls again.
func EncodeRedo(numbers []int) (b []byte) {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// decodeRedo decodes what EncodeRedo wrote.
func decodeRedo(encoded []byte) map[int]bool {
	redo := map[int]bool{}
	for in := (codec.Reader{Data: encoded}); len(in.Data) > 0; {
		redo[in.Number()] = true
	}
	return redo
}

// former returns the former child of an operation that failed; ok is false if the operation is of
// another kind, or its child was never started. Earlier versions stored only the error, which
// begins with the id of the child.
func (o *OpResult) former() (f FormerChild, ok bool) {
	if !isChildOp(o.Name) || o.Reason == 0 {
		return f, false
	}
	if len(o.Data) > 0 {
		in := codec.Reader{Data: o.Data}
		f = readFormer(&in)
		return f, in.Err == nil
	}
	text, _ := strings.CutPrefix(o.Text, "run ")
	text, _, _ = strings.Cut(text, " ")
	id, err := ParseID(text)
	return FormerChild{ID: id, Origin: id}, err == nil
}
