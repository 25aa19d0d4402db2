package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// round is what each contestant has reached, by its name, one after the other.
type round map[string]*figures

// inOrder are the figures that there are, Muster's first.
func (r round) inOrder() []*figures {
	var out []*figures
	for _, c := range []contestant{muster, kueueItself} {
		if f := r[c.name]; f != nil {
			out = append(out, f)
		}
	}
	return out
}

// sum writes the least, the median and the most that the contestants have reached
// in all rounds, and how they compare within each.
func sum(out io.Writer, rounds []round) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%d rounds\tmin\tmedian\tmax\n", len(rounds))
	row := func(what string, of func(r round) (float64, bool)) { spread(w, what, rounds, of) }
	for _, c := range []contestant{muster, kueueItself} {
		of := func(what string, figure func(f *figures) float64) {
			row(c.name+": "+what, func(r round) (float64, bool) {
				f := r[c.name]
				if f == nil {
					return 0, false
				}
				return figure(f), true
			})
		}
		of("wall in s", func(f *figures) float64 { return f.wall.Seconds() })
		of("wall / bound of quota and arrival", (*figures).ofBound)
		of("wall / bound of all that runs", func(f *figures) float64 { return f.wall.Seconds() / f.ofProcessors().Seconds() })
		of("processor time in s", func(f *figures) float64 { return f.processors.all().Seconds() })
		of("writes of a Workload per admission", (*figures).perAdmission)
		of("all writes per job", func(f *figures) float64 { return f.requests.writes() / float64(f.shape.jobs()) })
	}
	ratio := func(what string, of func(f *figures) time.Duration) {
		row(what, func(r round) (float64, bool) {
			a, b := r[muster.name], r[kueueItself.name]
			if a == nil || b == nil {
				return 0, false
			}
			return of(a).Seconds() / of(b).Seconds(), true
		})
	}
	ratio("wall, Muster / Kueue", func(f *figures) time.Duration { return f.wall })
	ratio("processor time, Muster / Kueue", func(f *figures) time.Duration { return f.processors.all() })
	return w.Flush()
}

// spread writes the least, the median and the most of what was measured in those
// rounds in which it was.
func spread[R any](w io.Writer, what string, rounds []R, of func(R) (float64, bool)) {
	var all []float64
	for _, r := range rounds {
		if v, ok := of(r); ok {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\n", what, all[0], all[len(all)/2], all[len(all)-1])
}

func TestSumOfRounds(t *testing.T) {
	of := func(wall, cpu time.Duration) *figures {
		return &figures{
			shape: kueueShape(10), wall: wall, processors: processors{theAPIServer: cpu},
			said: map[saying]int{saysAdmitted: 1500}, requests: requests{"write jobs": 3000},
		}
	}
	var out strings.Builder
	err := sum(&out, []round{
		{muster.name: of(10*time.Second, 8*time.Second), kueueItself.name: of(20*time.Second, 16*time.Second)},
		// One was not measured.
		{muster.name: of(30*time.Second, 8*time.Second)},
		{muster.name: of(20*time.Second, 8*time.Second), kueueItself.name: of(80*time.Second, 8*time.Second)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"3", "rounds", "min", "median", "max"},
		{"Muster:", "wall", "in", "s", "10.00", "20.00", "30.00"},
		{"Kueue:", "wall", "in", "s", "20.00", "80.00", "80.00"},
		{"Muster:", "all", "writes", "per", "job", "2.00", "2.00", "2.00"},
		{"wall,", "Muster", "/", "Kueue", "0.25", "0.50", "0.50"},
		{"processor", "time,", "Muster", "/", "Kueue", "0.50", "1.00", "1.00"},
	} {
		if !slices.ContainsFunc(strings.Split(out.String(), "\n"), func(line string) bool { return slices.Equal(strings.Fields(line), want) }) {
			t.Errorf("it does not say %q:\n%s", strings.Join(want, " "), out.String())
		}
	}
}
