// Package graph computes the drawing of a graph of steps, from top to bottom: a step is below all
// steps that it needs. It is not for graphs with cycles or for drawings of more than a few hundred
// steps.
package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Node is a step of the graph.
type Node struct {
	Name  string
	Needs []string // names of the steps that it needs; others are ignored
}

// Sizes of the drawing, in pixels.
const (
	NodeWidth  = 140
	NodeHeight = 46
	laneWidth  = 14 // of an edge that passes a layer
	gapX       = 14 // between two nodes of a layer
	gapY       = 34 // between two layers
	margin     = 4
)

// MaxNodes is the largest number of nodes that [Layout] draws.
const MaxNodes = 200

// maxPlaces is the largest number of nodes and of edges that pass a layer. More would be unreadable.
const maxPlaces = 4000

// Drawing has the positions of nodes and edges, in pixels from the upper left corner.
type Drawing struct {
	Width, Height int
	Boxes         []Box // in the order of the nodes
	Edges         []Edge
}

// Box is the position of a node: its upper left corner. It is NodeWidth wide and NodeHeight high.
type Box struct{ X, Y int }

// Edge is a line from a node to one that needs it.
type Edge struct {
	From, To int // indexes of nodes
	Path     string
	points   []Box // where it leaves the first node, passes each layer, and reaches the last node
}

// place is a node or a part of an edge in a layer.
type place struct {
	node   int // index of the node; -1 for an edge
	width  int
	x      int   // left side
	above  []int // indexes of the places of the layer above that it is connected with
	weight float64
}

// Layout computes the drawing. It returns false if the graph is empty, too large, or has a cycle. It
// leaves out an edge if a longer path connects the same nodes: that says the same. The result depends
// only on the nodes and their order.
func Layout(nodes []Node) (Drawing, bool) {
	if len(nodes) == 0 || len(nodes) > MaxNodes {
		return Drawing{}, false
	}
	needs := reduce(needsOf(nodes))
	layers, ok := layersOf(needs)
	if !ok {
		return Drawing{}, false
	}
	d := &drawer{layers: make([][]place, slices.Max(layers)+1), at: make([]int, len(nodes))}
	if !d.addPlaces(needs, layers) {
		return Drawing{}, false
	}
	for n := range d.layers {
		d.sort(n)
	}
	return d.draw(layers), true
}

// needsOf returns the indexes of the nodes that each node needs.
func needsOf(nodes []Node) [][]int {
	index := map[string]int{}
	for i, n := range nodes {
		index[n.Name] = i
	}
	needs := make([][]int, len(nodes))
	for i, n := range nodes {
		for _, name := range n.Needs {
			if k, ok := index[name]; ok && k != i && !slices.Contains(needs[i], k) {
				needs[i] = append(needs[i], k)
			}
		}
		slices.Sort(needs[i])
	}
	return needs
}

// reduce removes each need that another need of the same node implies.
func reduce(needs [][]int) [][]int {
	reach := make([]map[int]bool, len(needs)) // nodes that each node needs, directly or not
	var visit func(i int) map[int]bool
	visit = func(i int) map[int]bool {
		if reach[i] != nil {
			return reach[i]
		}
		all := map[int]bool{}
		reach[i] = all // a cycle ends here
		for _, k := range needs[i] {
			all[k] = true
			for far := range visit(k) {
				all[far] = true
			}
		}
		return all
	}
	out := make([][]int, len(needs))
	for i := range needs {
		out[i] = slices.DeleteFunc(slices.Clone(needs[i]), func(k int) bool {
			return slices.ContainsFunc(needs[i], func(other int) bool { return other != k && visit(other)[k] })
		})
	}
	return out
}

// layersOf returns the layer of each node: one more than the largest layer of the nodes that it needs.
// It returns false if there is a cycle.
func layersOf(needs [][]int) (layers []int, ok bool) {
	layers = make([]int, len(needs))
	for round := 0; ; round++ {
		changed := false
		for i := range needs {
			for _, k := range needs[i] {
				if layers[i] <= layers[k] {
					layers[i], changed = layers[k]+1, true
				}
			}
		}
		if !changed {
			return layers, true
		}
		if round > len(needs) {
			return nil, false
		}
	}
}

// drawer computes a drawing.
type drawer struct {
	layers [][]place
	at     []int   // index of each node in its layer, before the layer is sorted
	edges  [][]int // of each edge: first node, last node, then the index of its place in each layer between
}

// addPlaces adds the nodes and edges to the layers. It returns false if they are too many.
func (d *drawer) addPlaces(needs [][]int, layers []int) bool {
	order := make([]int, len(needs)) // the upper layers first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(layers[a], layers[b]) })
	total := len(needs)
	for _, i := range order {
		d.at[i] = len(d.layers[layers[i]])
		d.layers[layers[i]] = append(d.layers[layers[i]], place{node: i, width: NodeWidth})
	}
	for _, i := range order {
		for _, k := range needs[i] {
			edge, above := []int{k, i}, d.at[k]
			for n := layers[k] + 1; n < layers[i]; n++ {
				d.layers[n] = append(d.layers[n], place{node: -1, width: laneWidth, above: []int{above}})
				above = len(d.layers[n]) - 1
				edge = append(edge, above)
				if total++; total > maxPlaces {
					return false
				}
			}
			to := &d.layers[layers[i]][d.at[i]]
			to.above = append(to.above, above)
			d.edges = append(d.edges, edge)
		}
	}
	return true
}

// sort assigns the places of a layer their positions, from left to right: each as near as possible to
// the middle of the places above that it is connected with.
func (d *drawer) sort(n int) {
	layer := d.layers[n]
	order := make([]int, len(layer))
	for i := range layer {
		order[i] = i
		if p := &layer[i]; len(p.above) > 0 {
			for _, a := range p.above {
				up := &d.layers[n-1][a]
				p.weight += float64(up.x) + float64(up.width)/2
			}
			p.weight /= float64(len(p.above))
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(layer[a].weight, layer[b].weight) })
	width := -gapX
	for i := range layer {
		width += layer[i].width + gapX
	}
	x := -width / 2
	for _, i := range order {
		layer[i].x = x
		x += layer[i].width + gapX
	}
}

// draw returns the drawing of the sorted layers.
func (d *drawer) draw(layers []int) Drawing {
	left, right := 0, 0
	for _, layer := range d.layers {
		for _, p := range layer {
			left, right = min(left, p.x), max(right, p.x+p.width)
		}
	}
	out := Drawing{
		Width: right - left + 2*margin, Height: len(d.layers)*(NodeHeight+gapY) - gapY + 2*margin,
		Boxes: make([]Box, len(d.at)),
	}
	top := func(layer int) int { return margin + layer*(NodeHeight+gapY) }
	for i, layer := range layers {
		out.Boxes[i] = Box{d.layers[layer][d.at[i]].x - left + margin, top(layer)}
	}
	for _, e := range d.edges {
		from, to := e[0], e[1]
		edge := Edge{From: from, To: to, points: []Box{{out.Boxes[from].X + NodeWidth/2, out.Boxes[from].Y + NodeHeight}}}
		for k, at := range e[2:] {
			layer := layers[from] + 1 + k
			x := d.layers[layer][at].x - left + margin + laneWidth/2
			edge.points = append(edge.points, Box{x, top(layer)}, Box{x, top(layer) + NodeHeight})
		}
		edge.points = append(edge.points, Box{out.Boxes[to].X + NodeWidth/2, out.Boxes[to].Y})
		edge.Path = path(edge.points)
		out.Edges = append(out.Edges, edge)
	}
	return out
}

// path returns the path of an edge for SVG: curves between two layers, and straight lines through the
// layers that it passes.
func path(points []Box) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %d", points[0].X, points[0].Y)
	for i := 1; i < len(points); i++ {
		p, q := points[i-1], points[i]
		if i%2 == 0 || p.X == q.X {
			fmt.Fprintf(&b, "L%d %d", q.X, q.Y)
			continue
		}
		middle := (p.Y + q.Y) / 2
		fmt.Fprintf(&b, "C%d %d %d %d %d %d", p.X, middle, q.X, middle, q.X, q.Y)
	}
	return b.String()
}
