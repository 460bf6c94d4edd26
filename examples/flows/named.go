package main

import (
	"context"
	"fmt"

	"github.com/tideover/tideover/engine"
)

// Database is the input of the workflow named.
type Database struct{ Name string }

// migrate copies a database in 100 parts. Each part is an operation with a name of its own.
func (s *service) migrate(f *engine.Flow, in Database) (int, error) {
	const parts = 100
	for n := range parts {
		name := fmt.Sprintf("part-%02d", n)
		_, err := engine.Do(f, name, func(ctx context.Context) (string, error) {
			return s.call(ctx, fmt.Sprintf("copy %s of %s", name, in.Name))
		})
		if err != nil {
			return n, err
		}
	}
	return parts, nil
}

func exampleDatabase(i int) Database { return Database{fmt.Sprintf("database-%d", i)} }
