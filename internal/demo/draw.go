package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/internal/simulator"
)

// cell is one GPU: the letter of the job that holds it, and whether that job
// makes progress. The zero value is a free GPU.
type cell struct {
	letter  rune
	working bool
}

// picture is the GPUs of each node.
type picture struct {
	nodes []string
	cells map[string][]cell
}

// pictureOf reads who holds which GPU from pods that the simulator placed. A
// job works when as many of its pods run as it has ranks.
func pictureOf(nodes []corev1.Node, pods []corev1.Pod, ranks map[string]int) (picture, error) {
	p := picture{cells: map[string][]cell{}}
	for i := range nodes {
		p.nodes = append(p.nodes, nodes[i].Name)
		p.cells[nodes[i].Name] = make([]cell, gpusOf(nodes[i].Status.Allocatable))
	}
	slices.Sort(p.nodes)
	running := map[string]int{}
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodRunning {
			running[jobOf(&pods[i])]++
		}
	}
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		indices, err := simulator.GPUs(pod)
		if err != nil {
			return picture{}, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		name := jobOf(pod)
		for _, gpu := range indices {
			row := p.cells[pod.Spec.NodeName]
			if gpu >= len(row) {
				return picture{}, fmt.Errorf("pod %s holds GPU %d of node %s, which has %d", pod.Name, gpu, pod.Spec.NodeName, len(row))
			}
			row[gpu] = cell{letter: letterOf(name), working: running[name] == ranks[name]}
		}
	}
	return p, nil
}

// held and working count GPUs of the jobs named; all jobs if none is.
func (p picture) held(jobs ...string) (held, working int) {
	for _, row := range p.cells {
		for _, c := range row {
			if c.letter == 0 || (len(jobs) > 0 && !slices.ContainsFunc(jobs, func(j string) bool { return letterOf(j) == c.letter })) {
				continue
			}
			held++
			if c.working {
				working++
			}
		}
	}
	return held, working
}

// free is the number of free GPUs of each node.
func (p picture) free() map[string]int {
	out := map[string]int{}
	for node, row := range p.cells {
		for _, c := range row {
			if c.letter == 0 {
				out[node]++
			}
		}
	}
	return out
}

// draw writes one line a node: a capital letter for a GPU that works, a small
// one for a GPU that is held without working, a dot for a free one.
func (p picture) draw(out io.Writer, color bool) {
	for _, node := range p.nodes {
		var row strings.Builder
		for _, c := range p.cells[node] {
			row.WriteString(" " + c.symbol(color))
		}
		fmt.Fprintf(out, "    %-8s [%s ]\n", node, row.String())
	}
}

func (c cell) symbol(color bool) string {
	switch {
	case c.letter == 0:
		return "."
	case !color && c.working:
		return string(c.letter)
	case !color:
		return strings.ToLower(string(c.letter))
	case c.working:
		return "\x1b[32m" + string(c.letter) + "\x1b[0m"
	default:
		return "\x1b[31m" + strings.ToLower(string(c.letter)) + "\x1b[0m"
	}
}

// letterOf is a job's letter: the first of its name, in capitals.
func letterOf(job string) rune {
	for _, r := range strings.ToUpper(job) {
		return r
	}
	return '?'
}
