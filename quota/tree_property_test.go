package quota

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func at(minute int64) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }

// compare tells where a Tree and the model disagree.
func (m *model) compare(t *rapid.T, tree *Tree) {
	type numbers struct {
		Quota, Potential int64
		Used, Available  [views]int64
	}
	for _, p := range m.places() {
		n := tree.cohorts[p.name]
		if !p.cohort {
			n = tree.clusterQueues[p.name].node
		}
		if n != nil && n.height != m.height(p) {
			t.Fatalf("%v is %d high, want %d", p, n.height, m.height(p))
		}
		for _, fr := range modelCells {
			want := numbers{Quota: m.quota(p, fr), Potential: m.potential(p, fr)}
			for v := range views {
				want.Used[v], want.Available[v] = m.used(p, fr, v), m.available(p, fr, v)
			}
			if n == nil || n.cells[fr] == nil {
				// Nothing is known of it there.
				if want.Quota != 0 || want.Used != [views]int64{} {
					t.Fatalf("%v %v: the tree knows nothing of %+v", p, fr, want)
				}
				continue
			}
			c := n.cells[fr]
			got := numbers{Quota: c.quota.value(), Potential: c.potential().value()}
			for v := range views {
				got.Used[v], got.Available[v] = c.used[v].value(), c.available(v).value()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%v %v (-model +tree):\n%s", p, fr, diff)
			}
		}
	}
}

// TestTheTreeIsWhatItsPartsSay changes everything at random, and compares all
// sums and decisions with a model that has no sums.
func TestTheTreeIsWhatItsPartsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, m := newModelTree(), newModel()
		id := rapid.SampledFrom(modelIDs)
		usage := rapid.MapOf(rapid.SampledFrom(modelCells), rapid.Int64Range(1, 6))
		taking := func(t *rapid.T) (types.UID, modelTaking) {
			return id.Draw(t, "id"), modelTaking{cq: rapid.SampledFrom(modelQueues).Draw(t, "queue"), usage: usage.Draw(t, "usage")}
		}
		for _, q := range modelQueues {
			cq := drawQueue(t, q)
			tree.SetClusterQueue(cq)
			m.setQueue(cq)
		}
		t.Repeat(map[string]func(*rapid.T){
			"set a ClusterQueue": func(t *rapid.T) {
				cq := drawQueue(t, rapid.SampledFrom(modelQueues).Draw(t, "queue"))
				tree.SetClusterQueue(cq)
				m.setQueue(cq)
			},
			"set a Cohort": func(t *rapid.T) {
				c := drawCohort(t, rapid.SampledFrom(modelCohorts).Draw(t, "cohort"))
				tree.SetCohort(c)
				m.setCohort(c)
			},
			"delete a Cohort": func(t *rapid.T) {
				name := rapid.SampledFrom(modelCohorts).Draw(t, "cohort")
				tree.DeleteCohort(name)
				delete(m.cohorts, name)
			},
			"charge": func(t *rapid.T) {
				who, k := taking(t)
				tree.Charge(who, k.cq, k.usage, Holder{})
				m.charges[who] = k
				delete(m.claims, who)
				delete(m.held, who)
			},
			"release": func(t *rapid.T) {
				who := id.Draw(t, "id")
				tree.Release(who)
				delete(m.charges, who)
			},
			"leave": func(t *rapid.T) {
				who := id.Draw(t, "id")
				tree.Leave(who)
				if k, ok := m.charges[who]; ok {
					k.leaving = true
					m.charges[who] = k
				}
			},
			"claim": func(t *rapid.T) {
				who, k := taking(t)
				tree.Claim(who, k.cq, k.usage)
				m.claims[who] = k
			},
			"unclaim": func(t *rapid.T) {
				who := id.Draw(t, "id")
				tree.Unclaim(who)
				delete(m.claims, who)
			},
			"withhold": func(t *rapid.T) {
				who, k := taking(t)
				tree.Withhold(who, k.cq, k.usage)
				m.held[who] = k
			},
			"withhold from those who borrow": func(t *rapid.T) {
				who, k := taking(t)
				tree.WithholdFromBorrowers(who, k.cq, k.usage)
				k.fromBorrowers = true
				m.held[who] = k
			},
			"unwithhold": func(t *rapid.T) {
				who := id.Draw(t, "id")
				tree.Unwithhold(who)
				delete(m.held, who)
			},
			"assign": func(t *rapid.T) {
				r := drawRequest(t)
				a, no := tree.Assign(r)
				if m.looped(m.root(place{false, r.Queue.Name}).name) {
					if a != nil || no == nil {
						t.Fatal("something is admitted in a cycle of Cohorts")
					}
					return
				}
				m.check(t, r, a, no == nil)
			},
			"": func(t *rapid.T) { m.compare(t, tree) },
		})
	})
}

// check compares what Assign said with what the model has.
func (m *model) check(t *rapid.T, r Request, a *Assignment, fit bool) {
	cq := r.Queue.Name
	if a != nil {
		room, most := true, true
		for fr, v := range a.Usage {
			room = room && m.has(r.ID, cq, fr, v)
			most = most && v <= m.potential(place{false, cq}, fr)
		}
		if room != fit || fit != (a.Mode == Fit) || !most {
			t.Fatalf("%v fits=%v with mode %v: the model has room=%v, could ever have=%v", a.Usage, fit, a.Mode, room, most)
		}
	}
	if fit || len(r.PodSets) > 1 {
		return
	}
	// Where one pod set does not fit, no flavor has room for it.
	for _, flavor := range []string{"h100", "a100"} {
		room := true
		for res, v := range r.PodSets[0].PerPod {
			room = room && m.has(r.ID, cq, FlavorResource{flavor, res}, v)
		}
		if room && !m.passesOver(r, a, flavor) {
			t.Fatalf("%v does not fit, and flavor %s has room", r.PodSets[0].PerPod, flavor)
		}
	}
}

// passesOver says that another flavor than this one was taken, to preempt in it:
// an earlier one, or a later one that stops the search, if to borrow does not
// stop it.
func (m *model) passesOver(r Request, a *Assignment, flavor string) bool {
	if a == nil {
		return false
	}
	taken := slices.Collect(maps.Values(a.Flavors[0]))
	if flavor == "a100" {
		return slices.Contains(taken, "h100")
	}
	prefers, borrows := m.queues[r.Queue.Name].prefers, false
	for res, v := range r.PodSets[0].PerPod {
		borrows = borrows || m.borrows(r.ID, r.Queue.Name, FlavorResource{flavor, res}, v)
	}
	return slices.Contains(taken, "a100") && borrows && prefers.nextOverBorrowing && !prefers.nextOverPreemption
}

// TestNothingIsEverAdmittedTooMuch admits, preempts and releases at random in a
// tree that stays as it is, as the scheduler does it, and looks at the bounds
// of every node in every view.
func TestNothingIsEverAdmittedTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, m := newModelTree(), newModel()
		for i, c := range modelCohorts {
			obj := drawCohort(t, c)
			// Parents come first, so there is no cycle.
			if i == 0 || !slices.Contains(modelCohorts[:i], string(obj.Spec.ParentName)) {
				obj.Spec.ParentName = ""
			}
			tree.SetCohort(obj)
			m.setCohort(obj)
		}
		for _, q := range modelQueues {
			cq := drawQueue(t, q)
			tree.SetClusterQueue(cq)
			m.setQueue(cq)
		}
		tree.SetFairSharing(rapid.Bool().Draw(t, "fair sharing"))
		requests := map[types.UID]Request{}
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"admit or preempt": func(t *rapid.T) {
				r := drawRequest(t)
				next++
				r.ID = types.UID(fmt.Sprint("job", next))
				a, no := tree.Assign(r)
				if a == nil {
					return
				}
				h := Holder{Priority: r.Priority, Created: r.Created, Reserved: at(int64(next))}
				if no == nil {
					tree.Charge(r.ID, a.ClusterQueue, a.Usage, h)
					m.charges[r.ID] = modelTaking{cq: a.ClusterQueue, usage: a.Usage}
					return
				}
				p := tree.Preemption(r, a)
				victims := p.Victims()
				if len(victims) == 0 && !p.Fits() {
					return
				}
				for _, v := range victims {
					k := m.charges[v.ID]
					if k.leaving {
						t.Fatalf("%s is asked to leave twice", v.ID)
					}
					k.leaving = true
					m.charges[v.ID] = k
					tree.Leave(v.ID)
				}
				tree.Claim(r.ID, a.ClusterQueue, a.Usage)
				m.claims[r.ID] = modelTaking{cq: a.ClusterQueue, usage: a.Usage}
				for i := range r.PodSets {
					r.PodSets[i].Flavors = a.Flavors[i]
				}
				requests[r.ID] = r
			},
			"one that leaves has left, or ends": func(t *rapid.T) {
				if len(m.charges) == 0 {
					return
				}
				who := rapid.SampledFrom(slices.Sorted(maps.Keys(m.charges))).Draw(t, "who")
				tree.Release(who)
				delete(m.charges, who)
			},
			"all that leave have left, and claims come true": func(t *rapid.T) {
				for who, k := range m.charges {
					if k.leaving {
						tree.Release(who)
						delete(m.charges, who)
					}
				}
				for _, who := range slices.Sorted(maps.Keys(m.claims)) {
					a, no := tree.Assign(requests[who])
					if no != nil {
						t.Fatalf("what %s claims is not there when all have left: %s", who, no)
					}
					tree.Charge(who, a.ClusterQueue, a.Usage, Holder{Priority: requests[who].Priority})
					m.charges[who] = modelTaking{cq: a.ClusterQueue, usage: a.Usage}
					delete(m.claims, who)
				}
			},
			"": func(t *rapid.T) {
				for _, p := range m.places() {
					for _, fr := range modelCells {
						for v := range views {
							quota, used, l := m.quota(p, fr), m.used(p, fr, v), m.limits(p, fr)
							switch {
							case m.parent(p) == "" && used > quota:
								t.Fatalf("%v %v: %d in use of %d", p, fr, used, quota)
							case m.parent(p) != "" && l.borrowing != noLimit && used > quota+l.borrowing:
								t.Fatalf("%v %v: %d in use of %d, and %d may be borrowed", p, fr, used, quota, l.borrowing)
							}
						}
					}
				}
				m.compare(t, tree)
			},
		})
	})
}

// TestASearchIsALookAtATreeWithoutThoseRemoved compares Fits with a fresh tree
// that never had the jobs which are removed or leaving, and where claims have
// come true.
func TestASearchIsALookAtATreeWithoutThoseRemoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := newModelTree()
		type job struct {
			modelTaking
			Holder
			id types.UID
		}
		var jobs []job
		var specs []func(*Tree)
		for _, c := range modelCohorts[:2] {
			obj := drawCohort(t, c)
			obj.Spec.ParentName = ""
			if c != "c0" {
				obj.Spec.ParentName = "c0"
			}
			specs = append(specs, func(t *Tree) { t.SetCohort(obj) })
		}
		for _, q := range modelQueues {
			cq := drawQueue(t, q)
			specs = append(specs, func(t *Tree) { t.SetClusterQueue(cq) })
		}
		fair := rapid.Bool().Draw(t, "fair sharing")
		specs = append(specs, func(t *Tree) { t.SetFairSharing(fair) })
		for _, set := range specs {
			set(tree)
		}
		for i := range rapid.IntRange(1, 10).Draw(t, "jobs") {
			j := job{
				id: types.UID(fmt.Sprint(i)),
				modelTaking: modelTaking{
					cq:      rapid.SampledFrom(modelQueues).Draw(t, "queue"),
					usage:   rapid.MapOf(rapid.SampledFrom(modelCells), rapid.Int64Range(1, 6)).Draw(t, "usage"),
					leaving: rapid.IntRange(0, 4).Draw(t, "leaves") == 0,
				},
				Holder: Holder{Priority: rapid.Int32Range(-2, 2).Draw(t, "priority"), Reserved: at(int64(i))},
			}
			jobs = append(jobs, j)
			tree.Charge(j.id, j.cq, j.usage, j.Holder)
			if j.leaving {
				tree.Leave(j.id)
			}
		}
		r := drawRequest(t)
		r.ID = "asks"
		a, _ := tree.Assign(r)
		if a == nil {
			return
		}
		p := tree.Preemption(r, a)
		candidates := p.Candidates()
		removed := map[types.UID]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "moves") {
			if len(candidates) == 0 {
				break
			}
			c := rapid.SampledFrom(candidates).Draw(t, "candidate")
			if removed[c.ID] {
				p.Restore(c.ID)
				delete(removed, c.ID)
			} else if p.Remove(c.ID) {
				removed[c.ID] = true
			}
		}
		fresh := newModelTree()
		for _, set := range specs {
			set(fresh)
		}
		for _, j := range jobs {
			if !removed[j.id] && !j.leaving {
				fresh.Charge(j.id, j.cq, j.usage, j.Holder)
			}
		}
		room := true
		for fr, v := range a.Usage {
			room = room && !fresh.clusterQueues[a.ClusterQueue].cells[fr].available(now).less(amountOf(v))
		}
		if room != p.fits(true) {
			t.Fatalf("without %v it fits: search %v, fresh tree %v", removed, p.fits(true), room)
		}
		// Flavors are chosen for one pod set after the other: when others have left,
		// the first may get one that leaves too little of it to the second.
		if p.Fits() && len(r.PodSets) == 1 {
			if b, no := fresh.Assign(r); no != nil && b == nil {
				t.Fatalf("it fits, and a fresh tree says %s", no)
			}
		}
		// What was removed can be removed again in any order.
		again := tree.Preemption(r, a)
		for _, id := range rapid.Permutation(slices.Sorted(maps.Keys(removed))).Draw(t, "order") {
			if !fair && !again.Remove(id) {
				t.Fatalf("%v is legal in one order and not in another", removed)
			}
		}
		// Nobody goes from a queue that has not more than its own.
		for _, c := range candidates {
			if removed[c.ID] && c.ClusterQueue != a.ClusterQueue && len(tree.Borrowed(c.ClusterQueue)) == 0 {
				t.Fatalf("%s goes from %s, which has borrowed nothing", c.ID, c.ClusterQueue)
			}
		}
	})
}

// TestAQueueKeepsItsNominalQuota takes jobs of one queue away at random; the
// rule for one resource is simple: without the largest of them the queue must
// still be above its nominal quota.
func TestAQueueKeepsItsNominalQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nominal := rapid.Int64Range(0, 10).Draw(t, "nominal")
		tree := world(preempting(queueIn("team", "alpha", gpus(20)), nobody, anyOf), queueIn("team", "beta", gpus(nominal)))
		sizes := map[types.UID]int64{}
		var used int64
		for i := range rapid.IntRange(1, 8).Draw(t, "jobs") {
			id := types.UID(fmt.Sprint(i))
			sizes[id] = rapid.Int64Range(1, 6).Draw(t, "GPUs")
			used += sizes[id]
			tree.Charge(id, "beta", Usage{h100GPUs: sizes[id]}, Holder{Reserved: at(int64(i))})
		}
		r := ask("alpha", 20, 0)
		a, _ := tree.Assign(r)
		p := tree.Preemption(r, a)
		removed := map[types.UID]int64{}
		for range rapid.IntRange(0, 20).Draw(t, "moves") {
			id := rapid.SampledFrom(slices.Sorted(maps.Keys(sizes))).Draw(t, "job")
			if _, gone := removed[id]; gone {
				p.Restore(id)
				delete(removed, id)
				continue
			}
			removed[id] = sizes[id]
			var sum, largest int64
			for _, v := range removed {
				sum, largest = sum+v, max(largest, v)
			}
			legal := used-(sum-largest) > nominal
			if got := p.Remove(id); got != legal {
				t.Fatalf("removing %v of %d in use, %d nominal: legal=%v, want %v", removed, used, nominal, got, legal)
			}
			if !legal {
				delete(removed, id)
			}
		}
	})
}
