package simulate

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
	"github.com/tideover/tideover/sim"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
)

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// sheet is the data of the HTML page.
type sheet struct {
	Policy   string // content security policy, which allows nothing but this style
	Style    template.CSS
	Name     string
	About    string
	Findings []string
	Seeds    string
	Omitted  string // why the table lacks a row
	Entrants []entrant
	Rows     []sheetRow
	Marked   bool
	GaveUp   []sheetShares // by reason
	Classes  []sheetShares // that succeeded, by priority
	Fails    bool
	Figures  []figure
	Heat     []figure
	Recovery *figure
	Describe []string
	YAML     string
	Command  string
}

// entrant is a policy on the page.
type entrant struct {
	Hue          int
	Name, Policy string
	Breaker      bool
}

// sheetRow is a row of the table.
type sheetRow struct {
	Title, About string
	Cells        []cell
}

// sheetShares is a row of a table of shares, with one share for each policy.
type sheetShares struct {
	Name   string
	Shares []string
}

// shareRows returns a row of shares for each key with a share above 0. pick returns the shares of a
// policy, by key.
func shareRows(v *View, pick func(*sim.Result) map[string]float64) (rows []sheetShares) {
	kinds := map[string]bool{}
	for i := range v.Report.Results {
		for k, f := range pick(&v.Report.Results[i]) {
			if f > 0 {
				kinds[k] = true
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		row := sheetShares{Name: k}
		for i := range v.Report.Results {
			row.Shares = append(row.Shares, share.value(pick(&v.Report.Results[i])[k]))
		}
		rows = append(rows, row)
	}
	return rows
}

// HTML writes the report as a self-contained page: no script, and no network access, which its
// content security policy forbids.
func HTML(w io.Writer, v *View) error {
	style := pageStyle + hueVars(len(v.Report.Results))
	sum := sha256.Sum256([]byte(style))
	s := sheet{
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'",
		Style:  template.CSS(style), //nolint:gosec // a constant
		Name:   visible(v.Scenario.Name), About: visible(v.Scenario.About), Seeds: v.seeds(), Omitted: v.noRecovery(),
		YAML: File{Scenario: v.Scenario, Policies: v.Contestants}.YAML(), Command: v.Command,
		Figures: []figure{loadFigure(v), goodFigure(v)}, Fails: len(v.Scenario.Failures) > 0,
	}
	s.fill(v)
	return pageTemplate.Execute(w, s)
}

func (s *sheet) fill(v *View) {
	for _, text := range v.Findings() {
		s.Findings = append(s.Findings, visible(text))
	}
	for _, text := range Describe(v.Scenario) {
		s.Describe = append(s.Describe, visible(text))
	}
	for i, r := range v.Report.Results {
		s.Entrants = append(s.Entrants, entrant{Hue: hue(i), Name: visible(r.Name), Policy: r.Policy, Breaker: v.Contestants[i].Breaker != nil})
		s.Heat = append(s.Heat, heatFigure(v, i))
	}
	for _, m := range v.rows() {
		row := sheetRow{Title: m.title(v), About: m.meaning(v)}
		for i := range v.Report.Results {
			c := v.cell(m, i)
			s.Marked = s.Marked || c.Best
			row.Cells = append(row.Cells, c)
		}
		s.Rows = append(s.Rows, row)
	}
	s.GaveUp = shareRows(v, func(r *sim.Result) map[string]float64 { return r.GaveUp })
	s.Classes = shareRows(v, func(r *sim.Result) map[string]float64 { return r.ByPriority })
	if hasWaiting(v.Report) {
		s.Figures = append(s.Figures, queueFigure(v))
	}
	if f := cdfFigure(v); f.plot != nil {
		s.Figures = append(s.Figures, f)
	}
	if f := recoveryFigure(v); v.recoverable() && needsRecovery(v) {
		s.Recovery = &f
	}
}

// hueVars returns the CSS classes of the policies' colours.
func hueVars(policies int) string {
	return chart.SeriesStyle(policies, 0) + swatches(policies, 0) +
		"@media (prefers-color-scheme: dark) {\n" + chart.SeriesStyle(policies, 1) + swatches(policies, 1) + "}\n"
}

// swatches returns the classes of [chart.SeriesStyle] for HTML elements such as legends, which have a
// background and a border-color instead of a fill and a stroke.
func swatches(policies, background int) string {
	names := strings.NewReplacer(".f", ".b", "fill:", "background:", ".s", ".u", "stroke:", "border-color:")
	return names.Replace(chart.SeriesStyle(policies, background))
}
