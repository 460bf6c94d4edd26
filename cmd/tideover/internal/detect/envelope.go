package detect

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// envelope is what surrounds the words of a message: time stamps, names of errors, statuses.
type envelope struct {
	text   string // the words of the message
	form   string // what makes the line an error, such as "API Error:"; "" for plain text
	status string // of HTTP, such as "429"; "" if none is stated
	json   bool   // the text is a field of an object
}

var (
	// logHead matches what a logger puts before a message.
	logHead = lazyregexp.New(`^(?:[\[(]?\d{4}-\d\d-\d\d[tT ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?[\])]?|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?|\[\d+\])(?: -)? `)
	// level matches a level of a log, with the name of the logger and a position in its source.
	level = lazyregexp.New(`^(?:[\w./-]+[: ] ?)?(?:\[?(?:ERROR|ERR!|WARN|WARNING|FATAL|SEVERE|CRITICAL)\]?[!:]*|\[?(?i:errors?|warn|warning|fatal|severe|critical|failed|failure)\]?[!:]+|\[(?i:error|warn|warning|fatal)\]) +(?:[\w./]+(?:::[\w]+)+:? |[\w./-]+\.(?:py|ts|js|go|rs):\d+(?::\d+)?(?: -)? )?`)
	// errorName matches words that end with the name of an error and a colon.
	errorName = lazyregexp.New(`^(?i:failed|unable|could not|couldn't|cannot|error) (?:[\w.'/-]+ ){0,6}[\w.'/-]+: |^\[?(?:[\w.'/()#-]+ ){0,5}?[\w.]*(?i:error|exception|failed|failure|fatal|status|denied)\w*\]?(?:(?: code)?:? \(?\d{3}\)?(?: [A-Z][\w ]{2,24})?)?(?: ?\([^()]{1,60}\))?(?: ?[:·]| -)(?: |$)`)
	// statusHead matches a status at the beginning of a text.
	statusHead = lazyregexp.New(`^\(?(?:HTTP(?:/[\d.]+)? )?\(?([45]\d\d)\)?(?: ?[:·-])?(?: |$)`)
	// statusWord matches a status that is named as one.
	statusWord = lazyregexp.New(`(?i)(?:\b(?:status|code|error|http)(?:[ _]?code)?\\?["']?:? ?\(?\\?["']?|\((?:http )?)([45]\d\d)\b`)
	// field matches a field of an object that is printed on several lines.
	field = lazyregexp.New(`^\\?["']?(?i:error|message|msg|detail|details|reason|type|code|status|err|chatmessage)\\?["']?: ?\\?["'{*]`)
	// errorObject matches an object that reports an error.
	errorObject = lazyregexp.New(`\{ ?\\?["'](?:error|type\\?["']: ?\\?["']error|message|code|detail)\b`)
)

// errorWords are the words of level and errorName. Most lines have none, which is quick to see.
var errorWords = []string{"err", "exception", "fail", "fatal", "status", "denied", "warn", "severe", "critical", "unable", "could", "cannot"}

// openEnvelope removes what surrounds a message.
func openEnvelope(line string) envelope {
	e := envelope{text: line}
	e.text = strings.TrimPrefix(e.text, logHead.FindString(e.text))
	heads := []*lazyregexp.Regexp{statusHead, field}
	if containsAny(strings.ToLower(line), errorWords) {
		heads = []*lazyregexp.Regexp{level, errorName, errorName, statusHead, errorName, field}
	}
	for _, head := range heads {
		m := head.FindStringSubmatch(e.text)
		if m == nil || len(m[0]) == len(e.text) && head == level {
			continue
		}
		if head == statusHead {
			e.status = m[1]
		}
		e.json = e.json || head == field
		e.form, e.text = strings.TrimSpace(e.form+" "+strings.TrimSpace(m[0])), e.text[len(m[0]):]
	}
	if m := statusWord.FindStringSubmatch(line); m != nil && e.status == "" {
		e.status = m[1]
	}
	if e.form == "" && strings.IndexByte(line, '{') >= 0 {
		e.form = errorObject.FindString(line)
	}
	if strings.TrimSpace(e.text) == "" || e.form != "" { // the name of an error says something, too
		e.text = line
	}
	return e
}

// quotedForm matches a line that only speaks of messages: an item of a list, a quotation, a row of a table, a line of a
// diff, of a search in files or of a log of commits.
var quotedForm = lazyregexp.New("^(?:[-*+>|#`] ?\\S|\\d+[.)] |[-+*/]{2,}|\\*\\*|[\\w./-]+\\.\\w+[:-]\\d+[:-]|[\\w./-]+\\.(?:log|txt|md|go|py|ts|js|rs|ya?ml|json):|[0-9a-f]{7,40} \\S|\"[^\"]*\"$)")

// codeForm matches a line of a program.
var codeForm = lazyregexp.New("^(?:(?:if|return|const|let|var|func|def|throw|raise|case|for|while)\\b.*[({=]|[@$][\\w-]+|.*:= |.*[;{]$|.*\\s@\\w|.*(?:\\w\\(\"|\\{\\w+: ))")

// noise matches lines that programs print below a message and that say nothing about the stop.
var noise = lazyregexp.New(`(?i)^(?:npm (?:notice|warn|err)|shell cwd was reset|update available|a new (?:version|release)|.*\brequest[ _-]?id\b|at [\w.<$]+|file "|traceback|[{}\[\]()"',\\]|https?://|(?:total )?(?:cost|duration|turns|tokens?|time|session|usage|model|api|wall|input|output)\b[\w ()]*: |\d+[.)] |[>›] ?|press |\(?(?:y|n)\)?$|\$\d|[\w.]+ ?[=:] ?\S+$|✓|\^|-{3,}|={3,})`)

// advice matches lines below a message that say what to do.
var advice = lazyregexp.New(`(?i)^(?:- )?(?:please|try|retry|check|run|see|visit|upgrade|add|contact|switch|use|sign|log|send|resend|to|for (?:more|details|help)|if|after|you (?:can|may|might)|or|learn|read|wait|your|once|consider|type|open|did you mean|go to|set|make sure|resume|continue|start|break|china|global|/)\b`)

// eventText returns the texts of an event that reports an error, such as {"type":"error","message":"..."}; "" if it reports
// something else.
func eventText(line []byte) string {
	events := decode(line)
	if len(events) != 1 {
		return ""
	}
	object, _ := events[0].(map[string]any)
	kind, _ := scalar(object["type"])
	severity, _ := scalar(object["level"])
	failed, _ := object["is_error"].(bool)
	said := object["error"]
	if said == nil {
		said = object["errors"]
	}
	if text, ok := scalar(said); (said == nil || ok && (text == "" || text == "false")) && !failed && !strings.Contains(kind, "error") && !strings.HasSuffix(kind, "failed") && severity != "error" {
		return ""
	}
	var texts []string
	collectTexts(object, &texts)
	return strings.Join(texts, ". ")
}

// collectTexts appends the fields of an object that describe an error.
func collectTexts(v any, to *[]string) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, plain := scalar(v[key])
			switch {
			case !plain:
				collectTexts(v[key], to)
			case slices.Contains([]string{"message", "error", "detail", "reason", "result", "text", "description", "title"}, key):
				*to = append(*to, text)
			default: // a code, or a time
				*to = append(*to, key+": "+text)
			}
		}
	case []any:
		for _, child := range v {
			collectTexts(child, to)
		}
	case string:
		*to = append(*to, v)
	case json.Number:
	}
}

// aside reports whether a line below a message belongs to it: it says what to do, or nothing about the stop.
func aside(line string) bool {
	if noise.MatchString(line) || advice.MatchString(line) {
		return !strings.HasPrefix(line, "```")
	}
	list := readWords(line, true)
	others, known := 0, 0
	for _, w := range list {
		switch {
		case w.is(proseWord):
			return false
		case w.known:
			known++
		case !w.name:
			others++
		}
	}
	return known > 2 && float64(others) <= mostOther*float64(others+known)
}
