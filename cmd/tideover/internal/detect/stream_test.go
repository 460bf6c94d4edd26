package detect

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnySplitGivesTheSame(t *testing.T) {
	t.Parallel()
	for _, output := range []string{
		"before\n" + `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794747600}}` + "\nafter\n",
		`{"type":"result","is_error":true,"result":"You’ve hit your session limit · resets 4:20pm (Asia/Tbilisi)"}`,
		"\x1b[31m5-hour limit reached\x1b[0m ∙ resets 3\u202fpm\r\n",
	} {
		pack := builtin(t, "claude-code")
		want := stopOf(t, "claude-code", output, 1)
		if want.Reason != RateLimit || want.Until.IsZero() {
			t.Fatalf("%q gives %+v", output, want)
		}
		for i := range len(output) {
			d := New(pack, Options{Location: time.UTC, At: noon})
			s := d.Stream()
			_, _ = s.Write([]byte(output[:i]))
			_, _ = s.Write([]byte(output[i:]))
			if got := d.Stop(1); got != want {
				t.Errorf("%q split at %d gives %+v, want %+v", output, i, got, want)
			}
		}
	}
}

func TestLongLines(t *testing.T) {
	t.Parallel()
	event := func(size int) string {
		return fmt.Sprintf(`{"type":"rate_limit_event","status":"rejected","resetsAt":1794747600,"x":%q}`, strings.Repeat("x", size))
	}
	for name, tc := range map[string]struct {
		output string
		want   Reason
	}{
		"an event of almost a MiB":                     {event(maxLine - 200), RateLimit},
		"an event of more is not read":                 {event(maxLine), Crashed},
		"what follows such an event is":                {event(2*maxLine) + "\n5-hour limit reached", RateLimit},
		"text without line ends, the message at last":  {strings.Repeat("x", 2*maxLine) + "\x1b[9;1H5-hour limit reached", RateLimit},
		"text without line ends, the message at first": {"5-hour limit reached" + strings.Repeat("x", 2*maxLine), Crashed},
	} {
		for _, piece := range []int{1 << 30, 99_991} {
			d := New(builtin(t, "claude-code"), Options{At: noon})
			s := d.Stream()
			for p := range slices.Chunk([]byte(tc.output), piece) {
				_, _ = s.Write(p)
			}
			if got := d.Stop(1); got.Reason != tc.want {
				t.Errorf("%s, in pieces of %d: %+v, want %s", name, piece, got, tc.want)
			}
		}
	}
}

func TestStreamsHaveTheirOwnLines(t *testing.T) {
	t.Parallel()
	d := New(builtin(t, "generic"), Options{At: noon})
	out, err := d.Stream(), d.Stream()
	_, _ = out.Write([]byte("com"))
	_, _ = err.Write([]byte("retry after 30\n"))
	_, _ = out.Write([]byte("piling\n"))
	if got, want := d.Tail(), []string{"retry after 30", "compiling"}; !slices.Equal(got, want) {
		t.Errorf("Tail() = %q, want %q", got, want)
	}
	if got := d.Stop(1); got.Line != "retry after 30" || got.Number != 1 {
		t.Errorf("Stop = %+v", got)
	}
}

func TestAWaitBeginsWhenTheLineIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(builtin(t, "generic"), Options{})
		_, _ = d.Stream().Write([]byte("retry after 30s\n"))
		want := time.Now().Add(30 * time.Second)
		time.Sleep(10 * time.Second)
		if got := d.Stop(1); !got.Until.Equal(want) {
			t.Errorf("until %v, want %v", got.Until, want)
		}
	})
}

func TestManyGoroutinesMayWrite(t *testing.T) {
	t.Parallel()
	d := New(builtin(t, "claude-code"), Options{At: noon})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s := d.Stream()
			for range 200 {
				_, _ = s.Write([]byte("5-hour limit reached\n{\"type\":\"rate_limit_event\",\"status\":\"rejected\"}\npart"))
				d.Tail()
			}
			d.Stop(1)
		})
	}
	wg.Wait()
	if got := d.Stop(1); got.Reason != RateLimit {
		t.Errorf("Stop = %+v", got)
	}
}

// transcript is output like that of assistants: prose, code, events, colours.
func transcript() []byte {
	var b bytes.Buffer
	for i := range 50 {
		fmt.Fprintf(&b, "I'll look at the handler first, then change how it waits for the server to answer (%d).\n", i)
		b.WriteString("\tif err := json.Unmarshal(line, &event); err != nil {\n\t\treturn fmt.Errorf(\"decode: %w\", err)\n\t}\n\n")
		fmt.Fprintf(&b, "\x1b[2m  %d │\x1b[0m \x1b[32m+\x1b[0m  limit := rate.NewLimiter(10, 1) // a rate limit\n", i)
		fmt.Fprintf(&b, `{"type":"assistant","message":{"id":"msg_%d","model":"opus","content":[{"type":"text","text":"%s"}],"usage":{"input_tokens":12,"output_tokens":345}}}`+"\n", i, strings.Repeat("Some more text about the code. ", 12))
		fmt.Fprintf(&b, `{"type":"user","message":{"content":[{"type":"tool_result","content":"%s"}]}}`+"\n", strings.Repeat(`line of a file\n`, 60))
	}
	return b.Bytes()
}

func TestMemoryStaysFlat(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	d := New(builtin(t, "claude-code"), Options{At: noon})
	s, text := d.Stream(), transcript()
	_, _ = s.Write(text)
	before := heap()
	for n := 0; n < 16<<20; n += len(text) {
		_, _ = s.Write(text)
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	runtime.KeepAlive(d)
}

func TestLinesThatDoNotMatchCostNoAllocation(t *testing.T) {
	d := New(builtin(t, "claude-code"), Options{At: noon})
	s, text := d.Stream(), transcript()
	_, _ = s.Write(text)
	if got := testing.AllocsPerRun(10, func() { _, _ = s.Write(text) }); got > 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func FuzzWrite(f *testing.F) {
	for _, m := range messages {
		f.Add([]byte(m.output), uint(3), uint(17))
	}
	pack := builtin(f, "claude-code")
	f.Fuzz(func(t *testing.T, output []byte, i, j uint) {
		stop := func(pieces ...[]byte) (Stop, []string) {
			d := New(pack, Options{Location: time.UTC, At: noon})
			s := d.Stream()
			for _, p := range pieces {
				_, _ = s.Write(p)
			}
			return d.Stop(1), d.Tail()
		}
		a := int(i % uint(len(output)+1))
		b := a + int(j%uint(len(output)-a+1))
		want, wantTail := stop(output)
		explained := New(pack, Options{Location: time.UTC, At: noon, Explain: true})
		_, _ = explained.Stream().Write(output)
		if got, _ := explained.Explain(1); got != want {
			t.Fatalf("%q explained gives %+v, want %+v", output, got, want)
		}
		got, gotTail := stop(output[:a], output[a:b], output[b:])
		if got != want || !slices.Equal(gotTail, wantTail) {
			t.Fatalf("%q split at %d and %d gives %+v, %q, want %+v, %q", output, a, b, got, gotTail, want, wantTail)
		}
		if len(want.Line) > maxShown {
			t.Fatalf("the line has %d bytes", len(want.Line))
		}
	})
}

func BenchmarkLine(b *testing.B) {
	for name, line := range map[string]string{
		"prose":  "I'll look at the handler first, then change how it waits for the server to answer.\n",
		"code":   "\t\treturn fmt.Errorf(\"rate limit: decode: %w\", err)\n",
		"colour": "\x1b[2m  12 │\x1b[0m \x1b[32m+\x1b[0m  limit := rate.NewLimiter(10, 1) // a rate limit\n",
		"event":  `{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"` + strings.Repeat("Some more text. ", 60) + `"}]}}` + "\n",
	} {
		b.Run(name, func(b *testing.B) {
			s, text := New(builtin(b, "claude-code"), Options{}).Stream(), []byte(line)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.Write(text)
			}
		})
	}
}

func BenchmarkTranscript(b *testing.B) {
	s, text := New(builtin(b, "claude-code"), Options{}).Stream(), transcript()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Write(text)
	}
}

func BenchmarkStop(b *testing.B) {
	d := New(builtin(b, "claude-code"), Options{})
	_, _ = d.Stream().Write(append(transcript(), "5-hour limit reached ∙ resets 3am\n"...))
	b.ReportAllocs()
	for b.Loop() {
		d.Stop(1)
	}
}

func BenchmarkBuiltin(b *testing.B) {
	for b.Loop() {
		_, _ = Builtin("claude-code")
	}
}
