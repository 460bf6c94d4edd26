package graph

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestLayout(t *testing.T) {
	t.Parallel()
	d, ok := Layout([]Node{
		{"fetch", nil}, {"left", []string{"fetch"}}, {"right", []string{"fetch", "unknown"}}, {"send", []string{"left", "right", "fetch"}}, {"alone", nil},
	})
	if !ok || len(d.Boxes) != 5 {
		t.Fatalf("Layout() = %+v, %v", d, ok)
	}
	if rows := []bool{d.Boxes[0].Y == d.Boxes[4].Y, d.Boxes[1].Y == d.Boxes[2].Y, d.Boxes[1].Y > d.Boxes[0].Y, d.Boxes[3].Y > d.Boxes[1].Y}; reflect.DeepEqual(rows, []bool{true, true, true, true}) == false {
		t.Errorf("the layers are wrong: %+v", d.Boxes)
	}
	var edges []string
	for _, e := range d.Edges {
		edges = append(edges, fmt.Sprintf("%d-%d", e.From, e.To))
	}
	if got := strings.Join(edges, " "); got != "0-1 0-2 1-3 2-3" {
		t.Errorf("edges %s: fetch-send is implied by the others", got)
	}
	if d.Width > 312 {
		t.Errorf("two steps side by side are %d wide: a narrow phone has 312", d.Width)
	}
}

// A graph that can't be drawn is shown as a list.
func TestLayoutOfGraphsThatAreNotDrawn(t *testing.T) {
	t.Parallel()
	many := make([]Node, MaxNodes+1)
	for i := range many {
		many[i].Name = fmt.Sprint(i)
	}
	for name, nodes := range map[string][]Node{
		"none": nil, "too many": many, "a cycle": {{"a", []string{"b"}}, {"b", []string{"a"}}},
		"a cycle behind a step": {{"x", nil}, {"a", []string{"x", "c"}}, {"b", []string{"a"}}, {"c", []string{"b"}}},
	} {
		if d, ok := Layout(nodes); ok {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if _, ok := Layout(many[:MaxNodes]); !ok {
		t.Errorf("%d steps are not drawn", MaxNodes)
	}
}

// randomNodes returns nodes of which each needs some of the nodes before it.
func randomNodes(r *rand.Rand, n int, share float64) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i].Name = fmt.Sprint("step-", i)
		for k := range i {
			if r.Float64() < share {
				nodes[i].Needs = append(nodes[i].Needs, nodes[k].Name)
			}
		}
	}
	return nodes
}

func TestNothingOverlaps(t *testing.T) {
	t.Parallel()
	drawn := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		nodes := randomNodes(r, 1+r.IntN(MaxNodes), []float64{0.01, 0.05, 0.3}[seed%3])
		d, ok := Layout(nodes)
		if !ok {
			continue
		}
		drawn++
		if again, _ := Layout(nodes); !reflect.DeepEqual(d, again) {
			t.Fatalf("seed %d: two drawings of the same graph differ", seed)
		}
		checkBoxes(t, d)
		checkEdges(t, d)
		if t.Failed() {
			t.Fatalf("seed %d: %d nodes", seed, len(nodes))
		}
	}
	if drawn < 40 {
		t.Errorf("only %d of 60 graphs were drawn", drawn)
	}
}

func checkBoxes(t *testing.T, d Drawing) {
	t.Helper()
	for i, a := range d.Boxes {
		if a.X < 0 || a.Y < 0 || a.X+NodeWidth > d.Width || a.Y+NodeHeight > d.Height {
			t.Errorf("node %d is outside of the drawing: %+v", i, a)
		}
		for k, b := range d.Boxes[:i] {
			if a.X < b.X+NodeWidth && b.X < a.X+NodeWidth && a.Y < b.Y+NodeHeight && b.Y < a.Y+NodeHeight {
				t.Errorf("nodes %d and %d overlap: %+v %+v", k, i, b, a)
			}
		}
	}
}

// checkEdges checks that edges lead downwards and do not pass through nodes.
func checkEdges(t *testing.T, d Drawing) {
	t.Helper()
	for _, e := range d.Edges {
		if d.Boxes[e.From].Y >= d.Boxes[e.To].Y {
			t.Errorf("%d-%d leads upwards", e.From, e.To)
		}
		for i := 1; i+1 < len(e.points); i += 2 { // through a layer
			for n, b := range d.Boxes {
				if x := e.points[i].X; b.Y == e.points[i].Y && x > b.X && x < b.X+NodeWidth {
					t.Errorf("%d-%d passes through node %d", e.From, e.To, n)
				}
			}
		}
	}
}
