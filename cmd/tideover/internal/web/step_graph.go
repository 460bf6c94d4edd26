package web

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/graph"
	"github.com/tideover/tideover/engine"
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
		count[i.Steps[k].Status]++
	}
	g := newStepGraph(nodes, func(k int) graphNode {
		return graphNode{State: i.Steps[k].Status, Link: "#step-" + strconv.Itoa(k)}
	})
	if g == nil {
		return nil
	}
	var said []string
	for _, state := range []string{"succeeded", "running", "waiting", "needs-handler", "failed", "canceled", "blocked"} {
		if n := count[state]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, stateLabel(state)))
		}
	}
	g.Said = textfmt.Plural(len(nodes), "step") + ": " + strings.Join(said, ", ") + ". Each arrow leads to a step that needs the one above it."
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
