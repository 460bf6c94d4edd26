package pages

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/graph"
	"github.com/tideover/tideover/internal/textfmt"
)

// stepGraph is a drawing of the steps of a workflow or a run.
type stepGraph struct {
	graph.Drawing
	Nodes []graphNode
	Said  string // describes the graph in words
}

// graphNode is a step in the drawing.
type graphNode struct {
	graph.Box
	Name  string
	State string // "" in the definition of a workflow
	Line  string // text below the name; "" for the state
	More  string // what the title has after the state; "" for nothing
	Link  string // URL of the step on the same page
}

// nodeLetters is how many letters of a name there is room for.
const nodeLetters = 16

// newStepGraph returns the drawing; nil if there is only one step, or if the graph can't be drawn.
func newStepGraph(nodes []graph.Node, show func(i int) graphNode) *stepGraph {
	drawing, ok := graph.Layout(nodes)
	if !ok || len(nodes) < 2 {
		return nil
	}
	g := &stepGraph{Drawing: drawing}
	for i, box := range drawing.Boxes {
		n := show(i)
		n.Box, n.Name = box, nodes[i].Name
		g.Nodes = append(g.Nodes, n)
	}
	return g
}

// graphOfRun returns the drawing of the steps of a run with their states.
func graphOfRun(i *engine.Info) *stepGraph {
	nodes := make([]graph.Node, len(i.Steps))
	count := map[string]int{}
	for k := range i.Steps {
		nodes[k] = graph.Node{Name: i.Steps[k].Name, Needs: i.Steps[k].Needs}
		count[control.StateOf(&i.Steps[k])]++
	}
	g := newStepGraph(nodes, func(k int) graphNode {
		return graphNode{State: control.StateOf(&i.Steps[k]), Link: "#step-" + strconv.Itoa(k)}
	})
	if g == nil {
		return nil
	}
	var said []string
	for _, state := range control.StepStates {
		if n := count[state]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, strings.ReplaceAll(state, "-", " ")))
		}
	}
	g.Said = textfmt.Plural(len(nodes), "step") + ": " + strings.Join(said, ", ") + ". Each arrow leads to a step that needs the one above it."
	return g
}

// graphOfFile returns the drawing of the steps of a run that are in the file and run as code. A step
// leads to its last execution in the table. A loop is one node with the number of its items.
func graphOfFile(steps []control.FileStep, table *flow) *stepGraph {
	nodes := make([]graph.Node, len(steps))
	for k := range steps {
		nodes[k] = graph.Node{Name: steps[k].Name, Needs: steps[k].Needs}
	}
	shown := map[string]bool{}
	for k := range table.Ops {
		shown[table.Ops[k].ID] = true
	}
	g := newStepGraph(nodes, func(k int) graphNode {
		n := graphNode{State: steps[k].Status, Link: "#operations"}
		last := steps[k].Last()
		if last == nil {
			last = &control.Operation{StepInfo: &engine.StepInfo{Name: steps[k].Name}}
		}
		if id := opID(last); shown[id] {
			n.Link = "#" + id
		}
		if c := last.StepInfo.Items; c != nil {
			n.More = control.CountsText(c, "item")
			if steps[k].Status == last.Status { // not while the step is undone
				n.Line = fmt.Sprintf("%d of %d", c.Succeeded, c.Total)
				if c.Failed > 0 {
					n.Line = fmt.Sprintf("%d failed, %s", c.Failed, n.Line)
				}
			}
		}
		return n
	})
	if g != nil {
		g.Said = control.StepCountsText(steps) + ". Each arrow leads to a step that needs the one above it."
	}
	return g
}

// graphOfDefinition returns the drawing of the steps of a workflow.
func graphOfDefinition(steps []control.Step) *stepGraph {
	nodes := make([]graph.Node, len(steps))
	for k, s := range steps {
		nodes[k] = graph.Node{Name: s.Name, Needs: s.Needs}
	}
	g := newStepGraph(nodes, func(k int) graphNode {
		kind, _, _ := strings.Cut(steps[k].Handler, ":") // "go" for a Go function
		return graphNode{Line: firstLine(kind, nodeLetters), Link: "#def-" + strconv.Itoa(k)}
	})
	if g != nil {
		g.Said = textfmt.Plural(len(nodes), "step") + ". Each arrow leads to a step that needs the one above it."
	}
	return g
}

// Positions and sizes of the parts of a node.

func (graphNode) W() int         { return graph.NodeWidth }
func (graphNode) H() int         { return graph.NodeHeight }
func (n graphNode) MiddleX() int { return n.X + graph.NodeWidth/2 }
func (n graphNode) NameY() int   { return n.Y + 19 }
func (n graphNode) LineY() int   { return n.Y + 36 }

// Short returns the beginning of the name that there is room for.
func (n graphNode) Short() string { return firstLine(n.Name, nodeLetters) }
