// Package validate collects the problems of a configuration.
package validate

import (
	"fmt"
	"time"
)

// Problems are the problems that were found so far; [errors.Join] makes one error of them.
type Problems []error

// Add adds a problem.
func (p *Problems) Add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// Check adds a problem unless the condition holds.
func (p *Problems) Check(holds bool, format string, args ...any) {
	if !holds {
		p.Add(format, args...)
	}
}

// Field adds the problem of a field, after the field's name. It adds nothing if err is nil.
func (p *Problems) Field(name string, err error) {
	if err != nil {
		p.Add("%s: %w", name, err)
	}
}

// NotNegative adds a problem if the value of a field is below zero.
func NotNegative[T int | time.Duration](p *Problems, field string, v T) {
	if v < 0 {
		p.Add("%s: %v is negative", field, v)
	}
}
