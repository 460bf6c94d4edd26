package detect

// Spec is the source of a pack, as in a file. [Compile] checks it.
type Spec struct {
	Name        string       `yaml:"name" json:"name"`
	Description string       `yaml:"description" json:"description,omitempty"`
	Extends     string       `yaml:"extends" json:"extends,omitempty"` // built-in pack whose rules follow these
	ExitCodes   map[int]Exit `yaml:"exit-codes" json:"exit-codes,omitempty"`
	Messages    []Message    `yaml:"messages" json:"messages,omitempty"`
	Rules       []Rule       `yaml:"rules" json:"rules,omitempty"`
	Session     Session      `yaml:"session" json:"session,omitzero"`
}

// Exit is the meaning of an exit code.
type Exit struct {
	Reason  Reason `yaml:"reason" json:"reason"`
	Meaning string `yaml:"meaning" json:"meaning,omitempty"`
}

// Message is an event that contains text, which is processed as if it had been printed.
type Message struct {
	Event    map[string]any `yaml:"event" json:"event"`
	Text     string         `yaml:"text" json:"text"`         // path of the text
	Literals []string       `yaml:"literals" json:"literals"` // as in [Rule]
}

// Rule describes one message of a program. It has exactly one of Event, Header and Line.
type Rule struct {
	ID string `yaml:"id" json:"id"`

	// Event is for lines of JSON. It maps paths to the values that an event must have there. A list
	// means any of its values, *text* any value that contains text, and !text any value except text.
	// A path is names separated by dots; * is any name or index, and ** at the start is any depth.
	Event map[string]any `yaml:"event" json:"event,omitempty"`

	// Header is the name of a header, whose value is parsed like Retry-After.
	Header string `yaml:"header" json:"header,omitempty"`

	// Line is a regular expression for a line of text; case is ignored. Words in braces are macros:
	// see the table in docs/detect.md. The name of a group is the format of the time in it.
	Line string `yaml:"line" json:"line,omitempty"`

	// Literals are texts. Only lines that contain at least one of them are matched. For a line they
	// are in lower case; for an event they are spelled as in the event. A header needs none.
	Literals []string `yaml:"literals" json:"literals,omitempty"`

	// Context is for a line that is too unspecific alone: the line, or one of the 8 lines above it,
	// must contain one of these texts. They are in lower case; case is ignored.
	Context []string `yaml:"context" json:"context,omitempty"`

	Reason   Reason  `yaml:"reason" json:"reason"`
	Until    []Field `yaml:"until" json:"until,omitempty"`       // fields of an event that state the end of the limit; the first that exists counts
	For      string  `yaml:"for" json:"for,omitempty"`           // how long to wait if no end is stated, such as 60s
	At       string  `yaml:"at" json:"at,omitempty"`             // time of day at which the limit ends if no end is stated, such as 00:00 America/Los_Angeles
	Terminal bool    `yaml:"terminal" json:"terminal,omitempty"` // waiting does not help
	Alive    bool    `yaml:"alive" json:"alive,omitempty"`       // the program continues by itself, which cancels earlier matches

	// MovedOn is for signs that a program works again, or failed for another reason. They cancel
	// earlier matches: an event cancels earlier events and their text, and a line cancels earlier
	// lines that match only rules of the pack generic.
	MovedOn bool `yaml:"moved-on" json:"moved-on,omitempty"`

	// Fallback is for unspecific messages, such as an event that only reports a failure. It decides
	// if no other rule does, with any exit code.
	Fallback bool `yaml:"fallback" json:"fallback,omitempty"`

	// Examples are texts of one or more lines that the rule must match. [Compile] checks that.
	Examples []string `yaml:"examples" json:"examples,omitempty"`
}

// Field is where an event states the end of a limit.
type Field struct {
	Path string `yaml:"path" json:"path"`
	As   string `yaml:"as" json:"as"` // epoch, seconds, milliseconds, duration, moment, date, retry-after
}
