package plan

import "github.com/tideover/tideover/cmd/tideover/internal/draw"

// delayScale returns the scale on which every delay of the plans can be drawn.
func delayScale(plans []Plan, log bool) draw.Scale {
	s := draw.Scale{Log: log}
	for _, p := range plans {
		for _, r := range p.Retries {
			s.Include(r.Low, r.Delay, r.High)
		}
	}
	return s
}
