//go:build ignore

// Test runs go test, prints what it prints, and then the slowest tests and packages:
//
//	go run scripts/test.go go test [flags] [packages]
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// event is a line that go test -json prints.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// slow is a test or a package, and how long it took.
type slow struct {
	name    string
	seconds float64
}

// results are what go test has printed.
type results struct {
	verbose         bool
	lines           map[string][]event         // of each package that has not ended
	failed          map[string]map[string]bool // tests that have failed, by package
	tests, packages []slow
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: go run scripts/test.go go test [flags] [packages]")
	}
	c := exec.Command(os.Args[1], slices.Concat([]string{os.Args[2], "-json"}, os.Args[3:])...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		log.Fatal(err)
	}
	r := results{verbose: slices.Contains(os.Args, "-v"), lines: map[string][]event{}, failed: map[string]map[string]bool{}}
	for in := bufio.NewReader(out); ; {
		line, err := in.ReadString('\n')
		if line != "" {
			r.read(line)
		}
		if err != nil {
			break
		}
	}
	err = c.Wait()
	print("tests", r.tests)
	print("packages", r.packages)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	} else if err != nil {
		log.Fatal(err)
	}
}

// read reads a line. When a package has ended, it prints the lines of the package.
func (r *results) read(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Print(line)
		return
	}
	switch e.Action {
	case "build-output":
		fmt.Print(e.Output)
	case "output":
		r.lines[e.Package] = append(r.lines[e.Package], e)
	case "pass", "fail", "skip":
		switch {
		case e.Test == "":
			r.end(e)
		case !strings.Contains(e.Test, "/"):
			r.tests = append(r.tests, slow{e.Test + " of " + e.Package, e.Elapsed})
		}
		if e.Action == "fail" && e.Test != "" {
			if r.failed[e.Package] == nil {
				r.failed[e.Package] = map[string]bool{}
			}
			r.failed[e.Package][e.Test] = true
		}
	}
}

// end prints the lines of a package that has ended: of those that have passed only the last one, of the
// others the lines of the tests that have failed.
func (r *results) end(e event) {
	r.packages = append(r.packages, slow{e.Package, e.Elapsed})
	for _, line := range r.lines[e.Package] {
		isResult := line.Test == "" && (strings.HasPrefix(line.Output, "ok ") || strings.HasPrefix(line.Output, "? "))
		ofFailure := e.Action == "fail" && (line.Test == "" || r.failed[e.Package][line.Test]) && !strings.HasPrefix(line.Output, "=== ")
		if r.verbose || isResult || ofFailure {
			fmt.Print(line.Output)
		}
	}
	delete(r.lines, e.Package)
}

// print prints the five slowest of them.
func print(what string, list []slow) {
	slices.SortFunc(list, func(a, b slow) int { return cmp.Compare(b.seconds, a.seconds) })
	fmt.Printf("the slowest %s:\n", what)
	for _, s := range list[:min(len(list), 5)] {
		fmt.Printf("  %6.1f s  %s\n", s.seconds, s.name)
	}
}
