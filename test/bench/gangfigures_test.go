package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// gangFigures are what one contestant has reached with one load.
type gangFigures struct {
	name string
	load gangLoad
	// first and last are when the first and the last pod were bound, of the time
	// that began when the pods and their scheduler were there.
	first, last time.Duration
	// whole are when the last pod of each gang was bound, apart how long after the
	// first one of the gang, both in order.
	whole, apart []time.Duration
	// partly is how many gangs are bound in part.
	partly     int
	requests   requests
	processors processors
}

// newGangFigures are those of a load whose pods were bound at those times, by gang,
// in order.
func newGangFigures(name string, load gangLoad, bound map[string][]time.Duration, did requests, used processors) *gangFigures {
	f := &gangFigures{name: name, load: load, requests: did, processors: used}
	for _, times := range bound {
		first, last := times[0], times[len(times)-1]
		if f.first == 0 || first < f.first {
			f.first = first
		}
		f.last = max(f.last, last)
		f.whole, f.apart = append(f.whole, last), append(f.apart, last-first)
		if len(times) != load.size {
			f.partly++
		}
	}
	slices.Sort(f.whole)
	slices.Sort(f.apart)
	return f
}

// perSecond is how many pods were bound in a second, the wait for the first one
// included.
func (f *gangFigures) perSecond() float64 { return float64(f.load.pods()) / f.last.Seconds() }

// inStride is the same without the wait for the first one.
func (f *gangFigures) inStride() float64 {
	return float64(f.load.pods()-1) / (f.last - f.first).Seconds()
}

// gangRound is what each contestant has reached, by its name, one after the other.
type gangRound map[string]*gangFigures

// gangContestants are in the order in which they are reported.
var gangContestants = []contestant{bindCeiling, eventCeiling, gangCeiling, musterOfPods, coscheduling}

// ratio is Muster's figure as a multiple of that of another contestant.
func (r gangRound) ratio(of contestant, figure func(*gangFigures) float64) (float64, bool) {
	a, b := r[musterOfPods.name], r[of.name]
	if a == nil || b == nil {
		return 0, false
	}
	return figure(a) / figure(b), true
}

// compare writes the figures of the contestants side by side.
func (r gangRound) compare(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var all []*gangFigures
	for _, c := range gangContestants {
		if f := r[c.name]; f != nil {
			all = append(all, f)
		}
	}
	row := func(what string, of func(f *gangFigures) string) {
		fmt.Fprint(w, what)
		for _, f := range all {
			fmt.Fprint(w, "\t", of(f))
		}
		fmt.Fprintln(w)
	}
	perPod := func(n float64, f *gangFigures) string { return fmt.Sprintf("%.3f", n/float64(f.load.pods())) }
	row("", func(f *gangFigures) string { return f.name })
	row("pods/s, from when they and their scheduler are there", func(f *gangFigures) string { return fmt.Sprintf("%.0f", f.perSecond()) })
	row("pods/s, from the first binding", func(f *gangFigures) string { return fmt.Sprintf("%.0f", f.inStride()) })
	row("first binding after", func(f *gangFigures) string { return seconds(f.first) })
	row("last binding after", func(f *gangFigures) string { return seconds(f.last) })
	row("a gang is bound after: min, median, max", func(f *gangFigures) string { return span(f.whole) })
	row("from its first pod to its last: min, median, max", func(f *gangFigures) string { return span(f.apart) })
	row("gangs bound in part", func(f *gangFigures) string { return fmt.Sprint(f.partly) })
	names := map[string]bool{}
	running := map[string]bool{}
	for _, f := range all {
		for name := range f.requests {
			names[name] = true
		}
		for name, used := range f.processors {
			running[name] = running[name] || used >= 50*time.Millisecond
		}
	}
	row("requests per pod", func(f *gangFigures) string { return perPod(f.requests.all(), f) })
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row("  "+name, func(f *gangFigures) string { return perPod(f.requests[name], f) })
	}
	row("processor time per pod, in ms", func(f *gangFigures) string { return perPod(1000*f.processors.all().Seconds(), f) })
	for _, name := range slices.Sorted(maps.Keys(running)) {
		if running[name] {
			row("  "+name, func(f *gangFigures) string { return perPod(1000*f.processors[name].Seconds(), f) })
		}
	}
	return w.Flush()
}

// sumGangs writes the least, the median and the most that the contestants have
// reached in all rounds, and how Muster compares with the others within each.
func sumGangs(out io.Writer, rounds []gangRound) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d rounds\tmin\tmedian\tmax\n", len(rounds))
	row := func(what string, of func(r gangRound) (float64, bool)) { spread(w, what, rounds, of) }
	for _, c := range gangContestants {
		row(c.name+": pods/s", func(r gangRound) (float64, bool) {
			f := r[c.name]
			if f == nil {
				return 0, false
			}
			return f.perSecond(), true
		})
	}
	for _, c := range []contestant{bindCeiling, eventCeiling, gangCeiling, coscheduling} {
		row("pods/s, Muster / "+c.name, func(r gangRound) (float64, bool) { return r.ratio(c, (*gangFigures).perSecond) })
		row("pods/s from the first binding, Muster / "+c.name, func(r gangRound) (float64, bool) { return r.ratio(c, (*gangFigures).inStride) })
		row("processor time, Muster / "+c.name, func(r gangRound) (float64, bool) {
			return r.ratio(c, func(f *gangFigures) float64 { return f.processors.all().Seconds() })
		})
	}
	return w.Flush()
}

func TestFiguresOfGangs(t *testing.T) {
	s := func(seconds ...float64) (out []time.Duration) {
		for _, x := range seconds {
			out = append(out, time.Duration(x*float64(time.Second)))
		}
		return out
	}
	load := gangLoad{gangs: 2, size: 2}
	of := func(c contestant, bound map[string][]time.Duration) *gangFigures {
		return newGangFigures(c.name, load, bound, requests{"write new pods/binding": 4}, processors{theAPIServer: 8 * time.Millisecond})
	}
	round := gangRound{
		bindCeiling.name:  of(bindCeiling, map[string][]time.Duration{"a": s(0.5, 0.6), "b": s(0.7, 1)}),
		gangCeiling.name:  of(gangCeiling, map[string][]time.Duration{"a": s(0.5, 1), "b": s(1, 1.6)}),
		musterOfPods.name: of(musterOfPods, map[string][]time.Duration{"a": s(1, 1.5), "b": s(1.5, 2)}),
		coscheduling.name: of(coscheduling, map[string][]time.Duration{"a": s(1), "b": s(3, 8)}),
	}
	var out strings.Builder
	if err := round.compare(&out); err != nil {
		t.Fatal(err)
	}
	if err := sumGangs(&out, []gangRound{round}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"pods/s, from when they and their scheduler are there 4 2 2 0",
		"pods/s, from the first binding 6 3 3 0",
		"gangs bound in part 0 0 0 1",
		"from its first pod to its last: min, median, max 0.10 s, 0.30 s, 0.30 s 0.50 s, 0.60 s, 0.60 s 0.50 s, 0.50 s, 0.50 s 0.00 s, 5.00 s, 5.00 s",
		"processor time per pod, in ms 2.000 2.000 2.000 2.000",
		"pods/s, Muster / bind ceiling 0.50 0.50 0.50",
		"pods/s, Muster / gang ceiling 0.80 0.80 0.80",
		"pods/s, Muster / coscheduling 4.00 4.00 4.00",
		"pods/s from the first binding, Muster / bind ceiling 0.50 0.50 0.50",
		"processor time, Muster / coscheduling 1.00 1.00 1.00",
	} {
		if !slices.ContainsFunc(strings.Split(out.String(), "\n"), func(line string) bool {
			return strings.Join(strings.Fields(line), " ") == want
		}) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
}
