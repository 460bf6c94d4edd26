package detect

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/tideover/tideover/internal/textfmt"
)

// Options are what a [Detector] can be told.
type Options struct {
	Location *time.Location // of times without a zone; nil means the machine's
	Lines    int            // how many last lines count; 0 means 20
	At       time.Time      // when the output was written; zero means when it is
	Explain  bool           // remember what [Detector.Explain] is asked for, which costs time

	// OnSessionID is called once, when the program has stated the id of its session.
	// It must not call the Detector. Nil means that nothing is called.
	OnSessionID func(id string)
}

const (
	defaultLines = 20
	lastWords    = 5   // lines after which a program that was retrying has gone on
	lastGeneric  = 8   // lines in which a rule of generic counts
	lastOfDone   = 3   // lines in which anything but an event counts if the program says that it is done
	maxAbove     = 8   // lines above a line that may have its context
	maxWrapped   = 2   // lines that may have the rest of a message
	maxTraced    = 500 // lines that an explanation looks at
	maxEvents    = 16
	maxMessage   = 64 << 10 // bytes of an event's text, from its end
	maxShown     = 500      // bytes of a line in a verdict
)

// Detector watches the output of one command. Its memory is bounded, whatever it
// is fed. It may be used by several goroutines.
type Detector struct {
	mu      sync.Mutex
	pack    *Pack
	options Options
	norm    normalizer
	foreign bool // the pack is not that of the command: see [Detector.StopByAny]
	wrapped int  // how many lines may have the rest of a message; 0 means maxWrapped
	streams []*Stream
	session sessionReader

	number int // of the line that is being read, from 1, blank ones included
	count  int // lines that are not blank
	order  int // lines and events, of which a line may have several
	at     time.Time
	said   bool    // the text that is being read is that of an event
	fenced bool    // the text that is being read stands in a block of code
	indent bool    // the line that is being read begins as code does
	open   bool    // an event said something that a sign of going on would take back
	ring   []entry // the last lines and those above them, at their count modulo its length
	events []match // the last that matched
	whole  []byte  // all of the last event
	traced []entry // with Explain: lines with a literal
}

// entry is a line that is kept.
type entry struct {
	text   []byte // normalised, or an event as it came
	at     time.Time
	number int // as the input counts
	count  int // as the ring counts
	order  int // among lines and events
	event  bool
	said   bool   // it is the text of an event
	code   bool   // it stands in a block of code, or is indented as code is
	note   string // why an event did not match
}

// New returns a detector for a pack.
func New(pack *Pack, options Options) *Detector {
	if options.Lines <= 0 {
		options.Lines = defaultLines
	}
	if options.Location == nil {
		options.Location = time.Local
	}
	d := &Detector{pack: pack, options: options, ring: make([]entry, options.Lines+maxAbove)}
	d.norm.yield = d.text
	return d
}

// Stream returns a writer for one stream of the command's output, such as its
// standard error.
func (d *Detector) Stream() *Stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &Stream{d: d}
	d.streams = append(d.streams, s)
	return s
}

// Tail returns the last lines, for showing. The text of events is among them as
// it came.
func (d *Detector) Tail() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	kept, above := d.kept()
	for _, e := range kept[above:] {
		list = append(list, graphic(e.text))
	}
	return list
}

// kept returns the entries of the ring, the oldest first, and how many of them
// stand above the last lines.
func (d *Detector) kept() (list []entry, above int) {
	n := min(d.count, len(d.ring))
	list = make([]entry, 0, n)
	for i := d.count - n + 1; i <= d.count; i++ {
		list = append(list, d.ring[i%len(d.ring)])
	}
	return list, max(0, n-d.options.Lines)
}

// line takes a line of output without its end.
func (d *Detector) line(raw []byte, at time.Time) {
	d.number++
	d.at = at
	raw = bytes.TrimRight(raw, "\r")
	for {
		before, after, found := bytes.Cut(raw, leaveScreen)
		d.part(before)
		if !found {
			return
		}
		raw = after
	}
}

// leaveScreen is what a program writes that stops drawing on the whole screen. What
// follows stands on a line of its own.
var leaveScreen = []byte("\x1b[?1049l")

// part takes a line, or the part of one that is seen as a line.
func (d *Detector) part(raw []byte) {
	if event := d.norm.eventIn(raw); event != nil {
		d.event(event)
	} else if len(raw) > 0 {
		d.indent = looksLikeCode(raw)
		d.norm.line(raw)
	}
}

// text takes a normalised line.
func (d *Detector) text(line []byte) {
	d.readSessionLine(line)
	e := d.push(line, false)
	if d.options.Explain {
		d.traceText(*e)
	}
	if !d.said {
		fence := bytes.HasPrefix(line, codeFence)
		e.code = d.fenced || d.indent || fence
		d.fenced = d.fenced != fence
	}
}

func (d *Detector) push(line []byte, event bool) *entry {
	d.count++
	d.order++
	e := &d.ring[d.count%len(d.ring)]
	*e = entry{text: appendShort(e.text[:0], line), at: d.at, number: d.number, count: d.count, order: d.order, event: event, said: d.said}
	return e
}

// event takes a line that looks like JSON.
func (d *Detector) event(line []byte) {
	d.whole = append(d.whole[:0], line...)
	d.readSessionEvent(line)
	e := *d.push(line, true)
	if !d.interesting(line) {
		return
	}
	e.text = slices.Clone(e.text) // the lines of messages may take its place
	for _, event := range decode(line) {
		d.order++
		e.count, e.order = d.count, d.order // those before it in a list may have had text
		r := d.matchEvent(event, e)
		if r == nil && d.options.Explain {
			d.traceEvent(event, e)
		}
		if r == nil || !r.Alive && !r.MovedOn { // the text of success is an answer, and may quote anything
			d.readMessages(event)
		}
	}
}

// interesting reports whether the event is worth decoding, which takes a hundred
// times as long as looking for the literals. A sign of going on is in most events
// of a program that works; it is, once there is something to take back.
func (d *Detector) interesting(line []byte) bool {
	has := func(l []byte) bool { return bytes.Contains(line, l) }
	return slices.ContainsFunc(d.pack.literals, has) || d.open && slices.ContainsFunc(d.pack.movedOn, has)
}

// matchEvent returns the rule that the event matches, nil if there is none.
func (d *Detector) matchEvent(event any, e entry) *rule {
	for _, r := range d.pack.events {
		if r.MovedOn && !d.open {
			continue
		}
		got, ok := r.matchEvent(event, e.at, d.options.Location)
		if !ok {
			continue
		}
		if len(d.events) == maxEvents {
			d.events = append(d.events[:0], d.events[1:]...)
		}
		d.events = append(d.events, match{rule: r, reading: got, line: shown(e.text), number: e.number, count: e.count, end: e.count, order: e.order})
		d.open = !r.Alive && !r.MovedOn
		return r
	}
	return nil
}

// readMessages reads the text that an event carries for people as if it had been
// printed.
func (d *Detector) readMessages(event any) {
	d.said = true
	defer func() { d.said = false }()
	for _, m := range d.pack.messages {
		if m.event.fails(event) != "" {
			continue
		}
		m.text.visit(event, func(v any) bool {
			if text, ok := v.(string); ok {
				d.open = true
				for line := range strings.SplitSeq(text[max(0, len(text)-maxMessage):], "\n") {
					d.norm.line([]byte(line))
				}
			}
			return true
		})
	}
}

// shown returns a line as a verdict shows it.
func shown(text []byte) string { return textfmt.TruncateWithin(graphic(text), maxShown, "...") }

// graphic returns a text without what could change how a terminal shows it, which
// an event may have in it.
func graphic(text []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, string(text))
}
