package detect_test

import (
	"fmt"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/detect"
)

func Example() {
	pack, err := detect.Parse("mine", []byte(`
extends: generic
rules:
  - id: tired
    line: '^the oracle is tired; come back in {duration}{end}'
    literals: [oracle]
    reason: rate-limit
`))
	if err != nil {
		panic(err)
	}
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	d := detect.New(pack, detect.Options{Location: time.UTC, At: noon})
	fmt.Fprintln(d.Stream(), "The oracle is tired; come back in 2 hours.")
	stop := d.Stop(1)
	fmt.Println(stop.Reason, "until", stop.Until.Format(time.DateTime))
	// Output: rate-limit until 2026-11-15 14:00:00
}
