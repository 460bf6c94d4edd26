package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/internal/textfmt"
)

// feedbackLine formats feedback of a provider as a line with its time.
func feedbackLine(x *nip90client.Entry, zone *time.Location) string {
	return x.At.In(zone).Format(time.TimeOnly) + " " + feedbackText(x)
}

// feedbackText returns the status, the message and the details of feedback.
func feedbackText(x *nip90client.Entry) string {
	details := strings.Join(feedbackDetails(x), ", ")
	return shortText(x.Status) + optional(": ", shortText(x.Message), "") + optional(" (", details, ")")
}

func feedbackDetails(x *nip90client.Entry) (list []string) {
	if r := x.Retry; r != nil {
		// Providers that run tideover include this number in the message. Do not print it twice.
		if n := attemptOf(r.Number, r.Of); !strings.Contains(x.Message, n) {
			list = append(list, "retry "+n)
		}
		list = append(list, "next in "+textfmt.ReadableDuration(milliseconds(r.Wait)))
	}
	if x.Progress != nil {
		list = append(list, textfmt.FormatPercent(*x.Progress))
	}
	if x.ETA != nil {
		list = append(list, "eta "+seconds(*x.ETA))
	}
	if x.Amount != "" {
		list = append(list, "costs "+shortText(x.Amount)+" msat")
	}
	return list
}

// barWidth is the number of characters of a full progress bar.
const barWidth = 20

// progressLine returns a progress bar for a terminal.
func progressLine(x *nip90client.Entry) string {
	full := int(*x.Progress * barWidth / 100)
	text := "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] " + textfmt.FormatPercent(*x.Progress)
	if x.ETA != nil {
		text += ", eta " + seconds(*x.ETA)
	}
	return text + optional(", ", shortText(x.Message), "")
}

func seconds(s float64) string {
	return textfmt.CoarseDuration(time.Duration(s * float64(time.Second)))
}

// milliseconds converts a number of milliseconds, which another party has sent, to a duration. It
// returns the longest duration if the number is too large.
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
}

// failureText says why the provider could not deliver a result.
func failureText(f *nip90client.Failure) string {
	text := shortText(f.Message)
	if f.Code != "" && !strings.HasPrefix(f.Message, f.Code) {
		text = shortText(f.Code) + ": " + text
	}
	if f.Retry != nil && f.Retry.AttemptNumber > 0 {
		text += " (after " + textfmt.PluralOf(f.Retry.AttemptNumber, "retry", "retries") + ")"
	}
	return text
}

// watchLine formats an event as a line of nip90 watch.
func watchLine(x *nip90client.Entry, zone *time.Location) string {
	id := x.Request
	if x.Type == nip90client.TypeOffer {
		id = x.ID
	}
	return fmt.Sprintf("%s  %s  %-8s  %s", x.At.In(zone).Format(time.DateTime), id[:shownID], x.Type, watchText(x))
}

func watchText(x *nip90client.Entry) string {
	who := shortKey(x.Author)
	switch x.Type {
	case nip90client.TypeRequest:
		who += optional(" to ", shortKey(x.Provider), "")
		who += optional(", timeout ", shortText(x.Timeout), "")
		who += optional(", bid ", shortText(x.Bid), " msat")
		return fmt.Sprintf("%s, kind %d: %s", who, x.Kind, shortText(x.Content))
	case nip90client.TypeFeedback:
		return who + "  " + feedbackText(x)
	case nip90client.TypeResult:
		return who + "  " + resultText(x)
	case nip90client.TypeOffer:
		return who + "  " + offerText(x)
	}
	return who + optional("  ", shortText(x.Message), "")
}

// offerText describes the offer of a provider.
func offerText(x *nip90client.Entry) string {
	text := "kind " + joinInts(x.Kinds)
	if len(x.Kinds) > 1 {
		text = "kinds " + joinInts(x.Kinds)
	}
	return text + optional(": ", shortText(x.Name), "") + optional(": ", shortText(x.About), "")
}

func resultText(x *nip90client.Entry) string {
	text := shortText(x.Status)
	if x.Runtime != nil {
		text += " in " + textfmt.ReadableDuration(milliseconds(*x.Runtime))
	}
	text += optional(", costs ", shortText(x.Amount), " msat")
	if x.Failure != nil {
		return text + ": " + failureText(x.Failure)
	}
	return text + ": " + shortText(x.Content)
}
