package detect

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detecttest"
)

var (
	corpusFile   = flag.String("corpus", "testdata/corpus/messages.jsonl", "count how many messages of this `file` are read right: JSON lines, also compressed with gzip")
	corpusMisses = flag.Bool("corpus.misses", false, "print a line for each message that is read wrong, with -corpus")
)

// sample is a message or a decoy of the corpus; see testdata/corpus/README.md.
type sample struct {
	ID        string     `json:"id"`
	Assistant string     `json:"assistant"`
	Text      string     `json:"text"`
	At        *time.Time `json:"at"`
	Reason    string     `json:"reason"`
	Until     *time.Time `json:"until"`
	Source    string     `json:"source"`
	Decoy     bool       `json:"decoy"`
}

// readCorpus reads a file of the corpus.
func readCorpus(t testing.TB, name string) (list []sample) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var in io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list = append(list, s)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// packOf returns the pack of an assistant.
var packOf = map[string]string{
	"claude": "claude-code", "codex": "codex", "gemini": "gemini", "opencode": "opencode", "aider": "aider", "agy": "agy",
	"copilot": "copilot-cli", "cursor-agent": "cursor-agent",
}

// stop returns the verdict on the sample at the end of an output.
func (s *sample) stop(t testing.TB, above string, code int) Stop {
	t.Helper()
	at := atOf(s)
	d := New(builtin(t, cmp.Or(packOf[s.Assistant], "generic")), Options{Location: at.Location(), At: at, Assistant: IsAssistant(s.Assistant)})
	_, _ = d.Stream().Write([]byte(above + s.Text + "\n"))
	return d.StopByAny(code)
}

// atOf returns when the sample was printed.
func atOf(s *sample) time.Time {
	if s.At != nil {
		return *s.At
	}
	return noon
}

// check reports whether the verdict is right, and whether its time is wrong.
func (s *sample) check(got Stop, code int) (right, wrongTime bool) {
	wrongTime = !got.Until.IsZero() && (s.Until == nil || !got.Until.Equal(*s.Until))
	brief := []string{"overloaded", "crashed"} // the same waits follow
	reason := got.Reason.String()
	switch {
	case s.Decoy && code == 0:
		right = reason == "completed"
	case s.Decoy:
		right = reason == "crashed"
	case slices.Contains(brief, s.Reason):
		right = slices.Contains(brief, reason)
	default:
		right = reason == s.Reason && (s.Until == nil || got.Until.Equal(*s.Until)) && (reason != "terminal" || got.Terminal)
	}
	return right && !wrongTime, wrongTime
}

// tally counts samples.
type tally struct{ all, failed, succeeded, both, wrongTimes int }

const workAbove = "I read the code.\nNow I run the tests.\n"

// count counts the samples that are read right alone and below ordinary work.
func count(t testing.TB, list []sample, report func(s *sample, above string, code int, got Stop)) (n tally) {
	t.Helper()
	for i := range list {
		s := &list[i]
		n.all++
		right := map[int]bool{0: true, 1: true}
		wrong := false
		for _, code := range []int{0, 1} {
			for _, above := range []string{"", workAbove} {
				got := s.stop(t, above, code)
				ok, wrongTime := s.check(got, code)
				wrong = wrong || wrongTime
				if !ok && right[code] {
					right[code] = false
					report(s, above, code, got)
				}
			}
		}
		if right[1] {
			n.failed++
		}
		if right[0] {
			n.succeeded++
		}
		if right[0] && right[1] {
			n.both++
		}
		if wrong {
			n.wrongTimes++
		}
	}
	return n
}

// TestCorpusFile counts any file, without a bound.
func TestCorpusFile(t *testing.T) {
	t.Parallel()
	n := count(t, readCorpus(t, *corpusFile), func(s *sample, above string, code int, got Stop) {
		if *corpusMisses {
			t.Logf("%s, exit code %d, work above %v: %q\n got %s until %v by %s %s: %s\nwant %s until %v", s.ID, code, above != "", s.Text, got.Reason, got.Until, got.Pack, got.Rule, got.Note, s.Reason, s.Until)
		}
	})
	part := func(k int) float64 { return 100 * float64(k) / float64(max(n.all, 1)) }
	t.Logf("%d messages: right with exit code 1 %d (%.1f %%), with exit code 0 %d (%.1f %%), with both %d (%.1f %%), wrong times %d",
		n.all, n.failed, part(n.failed), n.succeeded, part(n.succeeded), n.both, part(n.both), n.wrongTimes)
}

// Of the messages of the corpus, at least 97 % are read right with both exit codes, and of the decoys at most 1 % are taken
// for messages. No time is wrong.
func TestCorpus(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]float64{"messages": 0.97, "decoys": 0.99} {
		var misses []string
		n := count(t, readCorpus(t, "testdata/corpus/"+name+".jsonl"), func(s *sample, _ string, code int, got Stop) {
			misses = append(misses, fmt.Sprintf("%s, exit code %d, is %s by %s", s.ID, code, got.Reason, got.Rule))
		})
		if float64(n.both) < least*float64(n.all) || n.wrongTimes > 0 {
			t.Errorf("%s: %d of %d are right, want %.0f %%; %d times are wrong:\n%s", name, n.both, n.all, 100*least, n.wrongTimes, strings.Join(misses, "\n"))
		}
	}
}

// messagesWithTimes returns the texts of the corpus and of detecttest in which the grammar finds a time, and that time.
func messagesWithTimes(t testing.TB) (list []sample, until []time.Time) {
	t.Helper()
	all := readCorpus(t, "testdata/corpus/messages.jsonl")
	for _, m := range detecttest.Messages {
		all = append(all, sample{Assistant: "claude", Text: m.Text, At: &detecttest.Now})
	}
	for _, s := range all {
		if got := s.stop(t, "", 1); !got.Until.IsZero() && !strings.Contains(s.Text, "{") {
			list, until = append(list, s), append(until, got.Until)
		}
	}
	return list, until
}

// A message that is cut off, or wrapped between words or inside of them, states the same time or none.
func FuzzCutAndWrapped(f *testing.F) {
	list, until := messagesWithTimes(f)
	for i := range list {
		f.Add(uint(i), uint(40), uint(0), false)
		f.Add(uint(i), uint(17), uint(0), true)
		f.Add(uint(i), uint(0), uint(len(list[i].Text)-3), false)
	}
	f.Fuzz(func(t *testing.T, index, width, cut uint, words bool) {
		i := int(index % uint(len(list)))
		s := list[i]
		text := s.Text
		end := "\n"
		if n := int(cut % uint(len(text)+1)); n > 0 && cut != 0 { // the program is killed while it prints
			text, end = strings.ToValidUTF8(text[:n], ""), ""
		}
		if width%120 > 5 {
			text = wrap(text, int(width%120), words)
		}
		if end == "" {
			text = strings.TrimRight(text, "\n") // the line has no end
		}
		d := New(builtin(t, cmp.Or(packOf[s.Assistant], "generic")), Options{Location: atOf(&s).Location(), At: atOf(&s), Assistant: IsAssistant(s.Assistant)})
		_, _ = d.Stream().Write([]byte(text + end))
		if got := d.StopByAny(1); !got.Until.IsZero() && !got.Until.Equal(until[i]) {
			t.Errorf("%q is until %v, want %v or none: %+v", text+end, got.Until, until[i], got)
		}
	})
}

// wrap breaks a text into lines of a width, between words or anywhere.
func wrap(text string, width int, words bool) string {
	var b strings.Builder
	column := 0
	for _, r := range text {
		switch {
		case r == '\n':
			column = -1
		case words && r == ' ' && column > width*2/3, !words && column == width:
			b.WriteByte('\n')
			column = 0
			if r == ' ' {
				continue
			}
		}
		b.WriteRune(r)
		column++
	}
	return b.String()
}

// BenchmarkSize measures output of several sizes, as lines and as one line. The cost of a byte must not grow.
func BenchmarkSize(b *testing.B) {
	message := "You've hit your usage limit. Try again at 3:07 PM.\n"
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		lines := strings.Repeat("The limit of the client is reached when it tries again in 5 minutes, which the test shows.\n", size/91+1)[:size-1] + "\n"
		for name, text := range map[string]string{"lines": lines, "line": strings.ReplaceAll(lines, "\n", " ") + "\n"} {
			b.Run(fmt.Sprintf("%s-%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					d := New(builtin(b, "claude-code"), Options{At: noon})
					_, _ = d.Stream().Write([]byte(text + message))
					d.StopByAny(1)
				}
			})
		}
	}
}
