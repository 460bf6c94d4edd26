package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/textfmt"
)

const (
	endSize    = 800  // bytes of the end of each stream that the page of a run reads
	endLines   = 6    // lines of it that the page shows
	foundLines = 1000 // lines that the page of an output shows as the result of a search
	foundWidth = 400  // characters of each of them
)

// outputURL returns the URL of the page with the output of an attempt.
func outputURL(a output.Attempt, page string) string {
	q := url.Values{"step": {a.Step}, "attempt": {strconv.Itoa(a.Number)}}
	if a.Operation > 0 {
		q.Set("operation", strconv.Itoa(a.Operation))
	}
	return pages.RunURL(a.Run) + "/" + page + "?" + q.Encode()
}

// outputs finds the outputs of the attempts of a run. In a cluster, another member may have the output
// of an attempt: then there is only a link.
func (h *server) outputs(i *engine.Info) pages.FindOutput {
	ends := h.control.Outputs.Ends(i, endSize)
	return func(s *engine.StepInfo, a *engine.AttemptInfo) *pages.Output {
		at := admin.OutputOf(i.ID, s, a.Number)
		end, known := ends[at]
		elsewhere := h.Clustered() && (a.Outcome == "failed" || a.Outcome == "succeeded")
		if !known && !elsewhere {
			return nil
		}
		o := &pages.Output{URL: outputURL(at, "output"), Label: "Output"}
		switch {
		case end.Lost != nil:
			o.Lost = h.redact(end.Lost.Error())
		case known:
			o.Label, o.End = sizesText(end.Record), h.redact(lastLines(end.Record))
			o.Does = h.redact(cmp.Or(end.Request, end.Command))
		}
		return o
	}
}

// sizesText describes the streams of an output, such as "Output: 12 kB on stdout, 3 B on stderr".
func sizesText(r *output.Record) string {
	var parts []string
	for i := range r.Streams {
		if s := &r.Streams[i]; s.Size > 0 || s.More {
			parts = append(parts, textfmt.RoundedSize(uint64(s.Size))+" in "+s.Name)
		}
	}
	if len(parts) == 0 {
		return "No output"
	}
	return "Output: " + strings.Join(parts, ", ")
}

// lastLines returns the last lines of the last stream that is not empty.
func lastLines(r *output.Record) string {
	for i := len(r.Streams) - 1; i >= 0; i-- {
		if text := strings.TrimSpace(output.Plain(r.Streams[i].Tail)); text != "" {
			lines := strings.Split(text, "\n")
			return strings.Join(lines[max(0, len(lines)-endLines):], "\n")
		}
	}
	return ""
}

// outputBody is the content of the page of an output.
type outputBody struct {
	*admin.Output
	RunURL   string
	Download string // URL of the text
	Action   string // URL of the search form
	Search   string // text to search for; "" for none
	Lines    []output.Line
	Found    int // lines that contain the text
	Parts    []outputPart
}

// outputPart is a stream of an output on its page.
type outputPart struct {
	Name, Size, Head, Omitted, Tail string
}

// outputPage shows the output of an attempt.
type outputPage struct{ server }

// load returns the output that a request names by the parameters step and attempt.
func (h outputPage) load(r *http.Request) (*admin.Output, error) {
	q := admin.OutputQuery{Run: r.PathValue("id"), Step: r.URL.Query().Get("step")}
	for field, n := range map[string]*int{"attempt": &q.Attempt, "operation": &q.Operation} {
		if text := r.URL.Query().Get(field); text != "" {
			var err error
			if *n, err = strconv.Atoi(text); err != nil || *n < 1 {
				return nil, control.Invalid(field, "%q is not the number of an %s", control.Excerpt(text), field)
			}
		}
	}
	return h.control.Outputs.Get(r.Context(), q)
}

func (h outputPage) serve(w http.ResponseWriter, r *http.Request) {
	o, err := h.load(r)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	h.Show(w, r, http.StatusOK, "output", h.page(r.Context(), o, r.URL.Query().Get("q")))
}

func (h outputPage) page(ctx context.Context, o *admin.Output, search string) pages.Page {
	record := o.Record()
	b := outputBody{
		Output: o, RunURL: pages.RunURL(o.Run), Download: outputURL(record.Attempt, "output.txt"), Action: pages.RunURL(o.Run) + "/output", Search: search,
	}
	if search != "" {
		b.Lines, b.Found = record.Search(search, foundLines)
		for i := range b.Lines {
			b.Lines[i].Text = h.redact(textfmt.ClipWithin(b.Lines[i].Text, foundWidth, "…"))
		}
	} else {
		for i := range record.Streams {
			s := &record.Streams[i]
			b.Parts = append(b.Parts, outputPart{
				Name: s.Name, Size: textfmt.Plural(int(s.Size), "byte"), Omitted: s.OmittedText(),
				Head: h.redact(output.Plain(s.Head)), Tail: h.redact(output.Plain(s.Tail)),
			})
		}
	}
	return pages.Page{Title: fmt.Sprintf("Output of %s, attempt %d", o.Step, o.Attempt), Place: pages.MenuRuns.Name, Dead: h.DeadCount(ctx), Body: b}
}

// download sends the output as text.
func (h outputPage) download(w http.ResponseWriter, r *http.Request) {
	o, err := h.load(r)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	httpserver.WriteDownload(w, r, o.FileName(), o.Text())
}
