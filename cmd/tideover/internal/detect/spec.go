package detect

// Spec is a pack as it is written in a file. It is plain data: [Compile] checks
// it.
type Spec struct {
	Name        string       `yaml:"name" json:"name"`
	Description string       `yaml:"description" json:"description,omitempty"`
	Extends     string       `yaml:"extends" json:"extends,omitempty"` // a built-in pack, whose rules follow these
	ExitCodes   map[int]Exit `yaml:"exit-codes" json:"exit-codes,omitempty"`
	Messages    []Message    `yaml:"messages" json:"messages,omitempty"`
	Rules       []Rule       `yaml:"rules" json:"rules,omitempty"`
	Session     Session      `yaml:"session" json:"session,omitzero"`
}

// Exit is what an exit code means.
type Exit struct {
	Reason  Reason `yaml:"reason" json:"reason"`
	Meaning string `yaml:"meaning" json:"meaning,omitempty"`
}

// Message is an event that carries text for people, which is read as if it had
// been printed.
type Message struct {
	Event    map[string]any `yaml:"event" json:"event"`
	Text     string         `yaml:"text" json:"text"`         // the path of the text
	Literals []string       `yaml:"literals" json:"literals"` // as in [Rule]
}

// Rule is one thing that a program says. It has exactly one of Event, Header
// and Line.
type Rule struct {
	ID string `yaml:"id" json:"id"`

	// Event is for lines of JSON: paths and the values wanted there, a list
	// meaning any of them, !text any but this. A path is names with dots between;
	// * is any name or index, and a ** at the start is any depth.
	Event map[string]any `yaml:"event" json:"event,omitempty"`

	// Header is the name of a header, whose value is read as Retry-After is.
	Header string `yaml:"header" json:"header,omitempty"`

	// Line is a regular expression for a line of text, in any case. Words in
	// braces stand for expressions that are needed often: see the table in
	// docs/detect.md. The name of a group says how to read what it captures.
	Line string `yaml:"line" json:"line,omitempty"`

	// Literals are texts of which a line has at least one, or is not looked at.
	// They are in lower case; those of an event are as the event spells them.
	// A header needs none.
	Literals []string `yaml:"literals" json:"literals,omitempty"`

	// Context is for a line that says too little by itself: it, or one of the 8
	// above it, must have one of these texts, in lower case.
	Context []string `yaml:"context" json:"context,omitempty"`

	Reason   Reason  `yaml:"reason" json:"reason"`
	Until    []Field `yaml:"until" json:"until,omitempty"`       // of an event; the first that is there counts
	For      string  `yaml:"for" json:"for,omitempty"`           // the wait when none is stated, such as 60s
	At       string  `yaml:"at" json:"at,omitempty"`             // the time of day at which the limit ends when none is stated, such as 00:00 America/Los_Angeles
	Terminal bool    `yaml:"terminal" json:"terminal,omitempty"` // never wait
	Alive    bool    `yaml:"alive" json:"alive,omitempty"`       // the program goes on by itself: what it said before is void

	// MovedOn is for what a program says when it works, or fails for another
	// cause. An event takes back the events before it, and their text; a line
	// takes back the lines before it that only rules of generic match.
	MovedOn bool `yaml:"moved-on" json:"moved-on,omitempty"`

	// Fallback is for what says little, such as an event that says only that the
	// program failed. It decides if no other rule does, whatever the exit code.
	Fallback bool `yaml:"fallback" json:"fallback,omitempty"`

	// Examples are lines, or several with line ends between, that the rule
	// matches. [Compile] checks that it does.
	Examples []string `yaml:"examples" json:"examples,omitempty"`
}

// Field is where an event says until when.
type Field struct {
	Path string `yaml:"path" json:"path"`
	As   string `yaml:"as" json:"as"` // epoch, seconds, milliseconds, duration, moment, date, retry-after
}
