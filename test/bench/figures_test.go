package bench

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// figures are what one contestant has reached.
type figures struct {
	name  string
	shape shape
	// wall is from the first submission to the last end of a job, submitted until
	// the last job was there.
	wall, submitted time.Duration
	// stopped is how often a running job was suspended.
	stopped int
	// toAdmission are the times from a job's creation to its first admission, by
	// class, in order.
	toAdmission map[string][]time.Duration
	// toResume are the times from a job's admission to its resumption, toFinish
	// from its end to when its Workload says so, both in order.
	toResume, toFinish []time.Duration
	// asked is how many requests the API server has answered, the benchmark's own
	// among them; requests are the contestant's, said the writes of Workloads by what they
	// say.
	asked    float64
	requests requests
	said     map[saying]int
	// peak and over are those of the history.
	peak int64
	over []string
	// processors is the processor time that all have used.
	processors processors
}

// figures are those of a drive that is over. did is what the API server did meanwhile.
func (d *driver) figures(name string, did requests) *figures {
	f := &figures{
		name: name, shape: d.shape, wall: d.lastEnd.Sub(d.began), submitted: d.submitted.Sub(d.began),
		asked: did.all(), said: d.said, stopped: d.stopped, toAdmission: map[string][]time.Duration{}, requests: maps.Clone(did),
	}
	// These are the driver's.
	delete(f.requests, "write new jobs")
	delete(f.requests, "write jobs/status")
	for _, j := range d.jobs {
		f.toAdmission[j.class.name] = append(f.toAdmission[j.class.name], j.admitted.Sub(j.created))
		f.toResume = append(f.toResume, j.resumed.Sub(j.admitted))
		f.toFinish = append(f.toFinish, j.told.Sub(j.over))
	}
	slices.Sort(f.toResume)
	slices.Sort(f.toFinish)
	for _, times := range f.toAdmission {
		slices.Sort(times)
	}
	f.peak, f.over = d.history.peaks()
	return f
}

// ofBound is the time it took as a multiple of the least that is possible.
func (f *figures) ofBound() float64 { return f.wall.Seconds() / f.shape.bound().Seconds() }

// ofAPIServer is the time it takes at least if the API server has the whole machine
// and nobody waits.
func (f *figures) ofAPIServer() time.Duration {
	return f.processors[theAPIServer] / time.Duration(runtime.NumCPU())
}

// ofProcessors is the same for all that runs, the benchmark itself included. On a
// machine that does nothing else, the wall is not below it.
func (f *figures) ofProcessors() time.Duration {
	return f.processors.all() / time.Duration(runtime.NumCPU())
}

// inVain is how many admissions ended before the job ran.
func (f *figures) inVain() int { return max(0, f.said[saysEvicted]-f.stopped) }

func (f *figures) perSecond() float64 { return float64(f.said[saysAdmitted]) / f.wall.Seconds() }

// perAdmission is how often a Workload is written to admit its job: once at least.
func (f *figures) perAdmission() float64 {
	return float64(f.said[saysAdmitted]+f.said[saysReserved]+f.said[saysOther]) / float64(f.said[saysAdmitted])
}

func (f *figures) perJob(n float64) string { return fmt.Sprintf("%.3f", n/float64(f.shape.jobs())) }

// compare writes the figures of the contestants side by side.
func compare(out io.Writer, all ...*figures) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what string, of func(f *figures) string) {
		fmt.Fprint(w, what)
		for _, f := range all {
			fmt.Fprint(w, "\t", of(f))
		}
		fmt.Fprintln(w)
	}
	row("", func(f *figures) string { return f.name })
	row("jobs", func(f *figures) string { return fmt.Sprint(f.shape.jobs()) })
	row("wall", func(f *figures) string { return seconds(f.wall) })
	row("bound of quota and arrival", func(f *figures) string { return seconds(f.shape.bound()) })
	row("wall / bound", func(f *figures) string { return fmt.Sprintf("%.2f", f.ofBound()) })
	row("all jobs submitted after", func(f *figures) string { return seconds(f.submitted) })
	row("admissions", func(f *figures) string { return fmt.Sprint(f.said[saysAdmitted]) })
	row("admissions/s", func(f *figures) string { return fmt.Sprintf("%.1f", f.perSecond()) })
	row("running jobs stopped", func(f *figures) string { return fmt.Sprint(f.stopped) })
	row("admitted jobs evicted before they ran", func(f *figures) string { return fmt.Sprint(f.inVain()) })
	for _, c := range all[0].shape.classes {
		row("time to admission, "+c.name+": min, median, max", func(f *figures) string {
			return span(f.toAdmission[c.name])
		})
	}
	row("from admission to resumption", func(f *figures) string { return span(f.toResume) })
	row("from the end of a job to that of its Workload", func(f *figures) string { return span(f.toFinish) })
	row("writes of a Workload per admission", func(f *figures) string { return fmt.Sprintf("%.2f", f.perAdmission()) })
	row("all writes per job", func(f *figures) string { return f.perJob(f.requests.writes()) })
	names := map[string]bool{}
	for _, f := range all {
		for name := range f.requests {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row("  "+name, func(f *figures) string { return f.perJob(f.requests[name]) })
	}
	row("writes of Workloads per job, by what they say", func(*figures) string { return "" })
	for _, s := range []saying{saysCreated, saysReserved, saysAdmitted, saysEvicted, saysRequeued, saysPending, saysOther, saysFinished} {
		row("  "+string(s), func(f *figures) string { return f.perJob(float64(f.said[s])) })
	}
	row("requests to the API server per job", func(f *figures) string { return f.perJob(f.asked) })
	row("its processor time per request", func(f *figures) string {
		return fmt.Sprintf("%.1f ms", 1000*f.processors[theAPIServer].Seconds()/f.asked)
	})
	row("processor time", func(f *figures) string { return seconds(f.processors.all()) })
	running := map[string]bool{}
	for _, f := range all {
		for name, used := range f.processors {
			running[name] = running[name] || used >= 100*time.Millisecond
		}
	}
	for _, name := range slices.Sorted(maps.Keys(running)) {
		if running[name] {
			row("  "+name, func(f *figures) string { return seconds(f.processors[name]) })
		}
	}
	row(fmt.Sprintf("bound of the API server on %d cores", runtime.NumCPU()), func(f *figures) string { return seconds(f.ofAPIServer()) })
	row("bound of all that runs on them", func(f *figures) string { return seconds(f.ofProcessors()) })
	row("wall / that", func(f *figures) string { return fmt.Sprintf("%.2f", f.wall.Seconds()/f.ofProcessors().Seconds()) })
	row("most of a cohort's quota in use", func(f *figures) string {
		return fmt.Sprintf("%.0f%%", float64(f.peak)/10/float64(f.shape.ofCohort()))
	})
	row("resource versions at which quota is overshot", func(f *figures) string { return fmt.Sprint(len(f.over)) })
	return w.Flush()
}

// span is the least, the median and the most of times that are in order.
func span(times []time.Duration) string {
	return fmt.Sprintf("%s, %s, %s", seconds(times[0]), seconds(times[len(times)/2]), seconds(times[len(times)-1]))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
