package move_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// Everything is moved from one folder to another. No engine has one of them open.
func ExampleMove() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "move")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	from, err := sqlitelog.Open(ctx, sqlitelog.Config{Dir: filepath.Join(dir, "old")})
	if err != nil {
		log.Fatal(err)
	}
	defer from.Close()
	to, err := sqlitelog.Open(ctx, sqlitelog.Config{Dir: filepath.Join(dir, "new")})
	if err != nil {
		log.Fatal(err)
	}
	defer to.Close()
	moved, err := move.Move(ctx, from, to, move.Options{From: "the old folder", To: "the new folder"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(moved.Runs), "runs to", moved.ToShards, "shard")
	// Output: 0 runs to 1 shard
}
