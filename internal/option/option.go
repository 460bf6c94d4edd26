// Package option has the code that packages with functional options share.
package option

import "errors"

// Apply applies the options to the target, and returns the errors of all of them. A nil
// option is an error.
func Apply[T any, O ~func(*T) error](target *T, opts []O) error {
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("option: nil"))
			continue
		}
		errs = append(errs, o(target))
	}
	return errors.Join(errs...)
}

// Given returns an option that calls set. If the value of the option is not present, it
// returns an error with the name of the option instead.
func Given[T any](present bool, name string, set func(*T)) func(*T) error {
	return func(target *T) error {
		if !present {
			return errors.New(name + ": nil")
		}
		set(target)
		return nil
	}
}
