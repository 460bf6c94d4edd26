package gateway

import (
	"strconv"
	"time"

	"github.com/tideover/tideover/internal/benchreport"
)

// processorTime returns user and system time of the process that is measured.
func (e endpoint) processorTime() (own time.Duration, err error) {
	if e.pid != 0 {
		own, _, _, err = benchreport.ProcessorTime(strconv.Itoa(e.pid))
	}
	return own, err
}

// memory adds the resident memory of the process to the values.
func (e endpoint) memory(values map[string]float64, when string) error {
	if e.pid == 0 {
		return nil
	}
	return benchreport.Memory(strconv.Itoa(e.pid), values, when)
}
