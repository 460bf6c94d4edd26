package detect

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	corpusFile   = flag.String("corpus", "", "count how many messages of this `file` are read right: JSON lines, also compressed with gzip")
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
	at := noon
	if s.At != nil {
		at = *s.At
	}
	d := New(builtin(t, cmp.Or(packOf[s.Assistant], "generic")), Options{Location: at.Location(), At: at, Assistant: IsAssistant(s.Assistant)})
	_, _ = d.Stream().Write([]byte(above + s.Text + "\n"))
	return d.StopByAny(code)
}

// verdict reports whether the verdict is right, and whether its time is wrong.
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

func TestCorpus(t *testing.T) {
	if *corpusFile == "" {
		t.Skip("no -corpus")
	}
	n := count(t, readCorpus(t, *corpusFile), func(s *sample, above string, code int, got Stop) {
		if *corpusMisses {
			t.Logf("%s, exit code %d, work above %v: %q\n got %s until %v by %s %s: %s\nwant %s until %v", s.ID, code, above != "", s.Text, got.Reason, got.Until, got.Pack, got.Rule, got.Note, s.Reason, s.Until)
		}
	})
	part := func(k int) float64 { return 100 * float64(k) / float64(max(n.all, 1)) }
	t.Logf("%d messages: right with exit code 1 %d (%.1f %%), with exit code 0 %d (%.1f %%), with both %d (%.1f %%), wrong times %d",
		n.all, n.failed, part(n.failed), n.succeeded, part(n.succeeded), n.both, part(n.both), n.wrongTimes)
}
