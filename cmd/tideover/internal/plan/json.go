package plan

import (
	"encoding/json"
	"io"
	"time"
)

// jsonPlan is the JSON of a plan. The format is public: fields may be added, but not removed or
// changed.
type jsonPlan struct {
	Name        string         `json:"name"`
	Use         string         `json:"use,omitempty"`
	Policy      string         `json:"policy"`
	Attempts    int            `json:"attempts"`
	Retries     []jsonRetry    `json:"retries"`
	Total       *time.Duration `json:"total_ns,omitempty"`
	LowTotal    *time.Duration `json:"low_total_ns,omitempty"`
	HighTotal   *time.Duration `json:"high_total_ns,omitempty"`
	SampleTotal *time.Duration `json:"sample_total_ns,omitempty"`
	WorstCase   time.Duration  `json:"worst_case_ns,omitempty"`
	Notes       []string       `json:"notes"`
}

type jsonRetry struct {
	N       int            `json:"n"`
	Delay   time.Duration  `json:"delay_ns"`
	Low     time.Duration  `json:"low_ns"`
	High    time.Duration  `json:"high_ns"`
	Sample  *time.Duration `json:"sample_ns,omitempty"`
	Sum     time.Duration  `json:"sum_ns"`
	LowSum  time.Duration  `json:"low_sum_ns"`
	HighSum time.Duration  `json:"high_sum_ns"`
	Never   bool           `json:"never,omitempty"`
}

// JSON writes the plans as a JSON object with the field plans.
func JSON(w io.Writer, plans []Plan) error {
	out := make([]jsonPlan, len(plans))
	for i := range plans {
		out[i] = toJSON(&plans[i])
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(map[string][]jsonPlan{"plans": out})
}

func toJSON(p *Plan) jsonPlan {
	j := jsonPlan{
		Name:      p.Name,
		Use:       p.Use,
		Policy:    p.Policy.String(),
		Attempts:  p.Attempts(),
		Retries:   make([]jsonRetry, len(p.Retries)), // [] instead of null if there are none
		WorstCase: p.WorstCase,
		Notes:     p.Notes(),
	}
	for i, r := range p.Retries {
		j.Retries[i] = jsonRetry{
			N: r.N, Delay: r.Delay, Low: r.Low, High: r.High,
			Sum: r.Sum.Delay, LowSum: r.Sum.Low, HighSum: r.Sum.High, Never: r.Never,
		}
		if p.Sampled {
			j.Retries[i].Sample = &r.Sample
		}
	}
	if t := p.Total; t != nil {
		j.Total, j.LowTotal, j.HighTotal = &t.Delay, &t.Low, &t.High
		if p.Sampled && p.Whole() {
			j.SampleTotal = &t.Sample
		}
	}
	return j
}
