package scheduling

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/topology"
)

// hear has the planner report how close the pods of a job come to each other.
func hear(g *placement.Gang) *closeness {
	c := &closeness{}
	for i := range g.Classes {
		if g.Classes[i].Topology != nil {
			g.Placed = func(t *placement.Topology, q topology.Quality) { c.of = append(c.of, judged{t, q}) }
			break
		}
	}
	return c
}

// closeness is how close the pods of a job are to each other, one for each request, or
// what was said of that before a restart.
type closeness struct {
	of   []judged
	said string
}

// saidOfCloseness finds it at the end of a message that says it in words.
var saidOfCloseness = regexp.MustCompile(`, (in (?:one domain|\d+ domains) of .*)$`)

// closenessIn is what a message of the condition Admitted says of it, nil if that is nothing.
func closenessIn(message string) *closeness {
	if said := saidOfCloseness.FindStringSubmatch(message); said != nil {
		return &closeness{said: said[1]}
	}
	return nil
}

// hears notes how close pods were planned that join others, if anything was heard.
func (e *entry) hears(heard *closeness) {
	if len(heard.of) > 0 {
		e.close = heard
	}
}

type judged struct {
	topology *placement.Topology
	topology.Quality
}

// String says it in the words of a condition; "" where nothing was asked for.
func (c *closeness) String() string {
	if c == nil {
		return ""
	}
	if c.said != "" {
		return c.said
	}
	var parts []string
	for _, j := range c.of {
		level := j.level()
		if level == "" {
			continue
		}
		text := fmt.Sprintf("in %d domains of %s", j.Domains, level)
		if j.Domains == 1 {
			text = "in one domain of " + level
		}
		switch {
		case j.Fewest == 0:
		case j.Domains > j.Fewest:
			text += fmt.Sprintf(", of which %d would do", j.Fewest)
		case j.Domains > 1:
			text += ", no fewer would do"
		}
		if j.Crossed > 0 {
			text += fmt.Sprintf(", %s crossed", levels(j.Crossed))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func levels(n int) string {
	if n == 1 {
		return "1 level"
	}
	return fmt.Sprintf("%d levels", n)
}

// level is the name of the level of which domains were counted.
func (j judged) level() string {
	levels := j.topology.Levels
	if j.Level < 0 || j.Level > len(levels) {
		return ""
	}
	if j.Level == len(levels) {
		return corev1.LabelHostname
	}
	return levels[j.Level]
}

// asked is what was asked for, as a label of metrics.
func (j judged) asked() string {
	switch t := j.topology; {
	case t.Unasked:
		return "nothing"
	case t.Level == "":
		return "unconstrained"
	case t.Required:
		return "required"
	}
	return "preferred"
}

// count adds the placing to the metrics.
func (c *closeness) count(clusterQueue string) {
	if c == nil {
		return
	}
	for _, j := range c.of {
		asked := j.asked()
		metrics.DomainsUsed.WithLabelValues(clusterQueue, asked).Observe(float64(j.Domains))
		metrics.LevelsCrossed.WithLabelValues(clusterQueue, asked).Observe(float64(j.Crossed))
		if excess := j.Domains - j.Fewest; excess > 0 && j.Fewest > 0 {
			metrics.ExcessDomains.WithLabelValues(clusterQueue, asked).Add(float64(excess))
		}
	}
}
