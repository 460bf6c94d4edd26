package detect

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/tideover/tideover/internal/textfmt"
)

// Options configure a [Detector].
type Options struct {
	Location *time.Location // for times without a zone; nil means the machine's zone
	Lines    int            // number of last lines that count; 0 means 20
	At       time.Time      // when the output was written; zero means the time of each call of Write
	Explain  bool           // record data for [Detector.Explain], which costs time

	Assistant bool // the program is an assistant that has no pack of its own
	Unknown   bool // the program may be another one than that of the pack

	// OnSessionID is called once, with the session id that the program has printed. It must not
	// call the Detector. It may be nil.
	OnSessionID func(id string)
}

const (
	defaultLines = 20
	lastWords    = 5   // lines after which a program that was retrying counts as continuing
	lastGeneric  = 8   // last lines in which a rule of generic counts
	lastOfDone   = 3   // last lines in which text counts if the exit code is 0
	maxAbove     = 8   // lines above a line that are its context
	maxWrapped   = 2   // continuation lines of a message
	maxTraced    = 500 // lines that an explanation covers
	maxEvents    = 16
	maxMessage   = 64 << 10 // bytes of an event's text, from its end
	maxShown     = 500      // bytes of a line in a verdict
)

// Detector analyses the output of one command. Its memory is bounded for any input. Several
// goroutines may use it.
type Detector struct {
	mu      sync.Mutex
	pack    *Pack
	options Options
	norm    normalizer
	foreign bool // the pack belongs to another program: see [Detector.StopByAny]
	streams []*Stream
	session sessionReader
	matcher lineMatcher
	lines   lineRing
	traced  trace // empty without Explain

	number int // of the current line, from 1, including blank ones
	order  int // number of lines and events; a line may contain several events
	at     time.Time
	said   bool    // the current text comes from an event
	fenced bool    // the current text is in a code block
	indent bool    // the current line is indented like code
	mark   bool    // the current line begins with the sign of an error
	cut    bool    // the current line has no line end
	open   bool    // an event has reported a problem, which progress of the program would cancel
	events []match // the last matching events
	whole  []byte  // the last event, not shortened
}

// entry is a stored line.
type entry struct {
	text   []byte // normalised text, or an unchanged event
	at     time.Time
	number int // of the input line
	count  int // lineRing.count of the line
	order  int // Detector.order of the line
	event  bool
	said   bool   // it comes from an event
	code   bool   // it is in a code block, or indented like code
	fenced bool   // it is in a code block
	mark   bool   // it begins with the sign of an error, such as ✗
	cut    bool   // it has no line end
	note   string // why an event did not match
}

// lineRing stores the last lines of the output and their context.
type lineRing struct {
	entries []entry // at index count modulo length
	count   int     // number of lines that are not blank
	limit   int     // number of last lines that count; the lines above them are context
}

// push adds a line, whose text it copies.
func (r *lineRing) push(e entry) *entry {
	r.count++
	stored := r.line(r.count)
	e.text, e.count = appendShort(stored.text[:0], e.text), r.count
	*stored = e
	return stored
}

// line returns the stored line with this count, which must be one of the last len(entries) counts.
func (r *lineRing) line(count int) *entry { return &r.entries[count%len(r.entries)] }

// kept returns the stored lines, oldest first, and how many of them are only context.
func (r *lineRing) kept() (list []entry, above int) {
	n := min(r.count, len(r.entries))
	list = make([]entry, 0, n)
	for i := r.count - n + 1; i <= r.count; i++ {
		list = append(list, *r.line(i))
	}
	return list, max(0, n-r.limit)
}

// New returns a detector for a pack.
func New(pack *Pack, options Options) *Detector {
	options.Lines = cmp.Or(options.Lines, defaultLines)
	options.Location = cmp.Or(options.Location, time.Local)
	d := &Detector{
		pack: pack, options: options,
		lines:   lineRing{entries: make([]entry, options.Lines+maxAbove), limit: options.Lines},
		session: sessionReader{rules: pack.session, onID: options.OnSessionID},
		matcher: lineMatcher{rules: pack.lines, zone: options.Location, wrapped: maxWrapped, known: (options.Assistant || pack.Name() != "generic") && !options.Unknown},
	}
	d.norm.yield = d.text
	return d
}

// Stream returns a writer for one output stream of the command, such as standard error.
func (d *Detector) Stream() *Stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &Stream{d: d}
	d.streams = append(d.streams, s)
	return s
}

// Tail returns the last lines for display. Events are included unchanged.
func (d *Detector) Tail() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	kept, above := d.lines.kept()
	for _, e := range kept[above:] {
		list = append(list, graphic(e.text))
	}
	return list
}

// SessionGone reports whether the program printed, in the last lines, that the session does not
// exist.
func (d *Detector) SessionGone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLines()
	return d.session.goneAt > 0 && d.lines.count-d.session.goneAt < d.lines.limit
}

// line processes a line of output without its line end.
func (d *Detector) line(raw []byte, at time.Time) {
	d.number++
	d.at = at
	raw = bytes.TrimRight(raw, "\r")
	for part := range bytes.SplitSeq(raw, leaveScreen) {
		d.part(part)
	}
}

// leaveScreen is the escape sequence that ends full-screen mode. The text after it is on a line of
// its own.
var leaveScreen = []byte("\x1b[?1049l")

// part processes a line, or a part of a line that the terminal shows as a line of its own.
func (d *Detector) part(raw []byte) {
	if event := d.norm.eventIn(raw); event != nil {
		d.event(event)
	} else if len(raw) > 0 {
		d.indent, d.mark = looksLikeCode(raw), errorMark(raw)
		d.norm.line(raw)
	}
}

// text processes a normalised line.
func (d *Detector) text(line []byte) {
	d.session.readLine(line, d.lines.count, d.said)
	e := d.push(line, false)
	if d.options.Explain {
		d.traced.addText(*e, d.pack.lines)
	}
	if !d.said {
		fence := bytes.HasPrefix(line, codeFence)
		e.fenced = d.fenced || fence
		e.code = e.fenced || d.indent
		d.fenced = d.fenced != fence
	}
}

func (d *Detector) push(line []byte, event bool) *entry {
	d.order++
	return d.lines.push(entry{text: line, at: d.at, number: d.number, order: d.order, event: event, said: d.said, cut: d.cut && !d.said, mark: d.mark && !event})
}

// event processes a line that looks like JSON.
func (d *Detector) event(line []byte) {
	d.whole = append(d.whole[:0], line...)
	d.session.readEvent(line, d.lines.count)
	e := *d.push(line, true)
	if !d.interesting(line) {
		return
	}
	e.text = slices.Clone(e.text) // readMessages may overwrite the ring's entry
	for _, event := range decode(line) {
		d.order++
		e.count, e.order = d.lines.count, d.order // earlier events of the list may have added lines
		r := d.matchEvent(event, e)
		if r == nil && d.options.Explain {
			d.traced.addEvent(event, e, d.pack.events)
		}
		if r == nil || !r.Alive && !r.MovedOn { // text of a success is an answer, which may quote anything
			d.readMessages(event)
		}
	}
}

// interesting reports whether the event must be decoded, which takes a hundred times as long as a
// search for literals. Signs of progress occur in most events, so their literals count only while
// there is a problem that they can cancel.
func (d *Detector) interesting(line []byte) bool {
	return hasAny(line, d.pack.literals) || d.open && hasAny(line, d.pack.movedOn)
}

// matchEvent returns the rule that the event matches; nil if there is none.
func (d *Detector) matchEvent(event any, e entry) *rule {
	for _, r := range d.pack.events {
		if r.MovedOn && !d.open {
			continue
		}
		got, ok := r.matchEvent(event, e.at, d.options.Location)
		if !ok {
			continue
		}
		d.events = append(d.events, match{rule: r, reading: got, line: shown(e.text), number: e.number, count: e.count, end: e.count, order: e.order})
		d.events = d.events[max(0, len(d.events)-maxEvents):]
		d.open = !r.Alive && !r.MovedOn
		return r
	}
	return nil
}

// readMessages processes the text in an event as if the program had printed it.
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

// shown returns a line as a [Stop] or a [Finding] contains it: printable and shortened.
func shown(text []byte) string { return textfmt.TruncateWithin(graphic(text), maxShown, "...") }

// graphic removes characters that could change how a terminal shows the text.
func graphic(text []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, string(text))
}
