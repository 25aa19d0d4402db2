package scheduling

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
)

func TestWhatCuresARefusedJob(t *testing.T) {
	var (
		lack     = &placement.Lack{Pods: 2, Bite: placement.Bite{Resource: gpuResource, PerPod: 8}}
		byQuota  = cure{wait: forQuota, queue: "cq"}
		byRoom   = cure{wait: forRoom, queue: "cq"}
		byLack   = cure{wait: forRoom, queue: "cq", lacks: []*placement.Lack{{}}}
		byGPUs   = cure{wait: forGPUs, queue: "cq", lacks: []*placement.Lack{lack}}
		release  = func(s *scene) { s.released(s.quota.Root("cq")) }
		another  = func(s *scene) { s.released(s.quota.Root("another")) }
		room     = func(s *scene) { s.otherRoomCame() }
		gpuRoom  = func(s *scene) { s.roomCame() }
		config   = func(s *scene) { s.touch() }
		flavored = func(s *scene) { s.otherRoomCame(); s.touch() }
		enough   = func(s *scene) { s.gpusFound(lack.Bite, 2) }
		tooFew   = func(s *scene) { s.gpusFound(lack.Bite, 1) }
	)
	tests := map[string]struct {
		cure     cure
		happens  func(*scene)
		due      bool
		plansNow bool
	}{
		"quota that is released cures a lack of quota":                 {byQuota, release, true, true},
		"but not that of another ClusterQueue":                         {byQuota, another, false, false},
		"and not room on a node":                                       {byQuota, gpuRoom, false, false},
		"room of any kind cures a job that fits no node":               {byRoom, room, true, true},
		"released quota does not, where there is one flavor":           {byRoom, release, false, false},
		"a job that lacks resources is looked at before it is planned": {byLack, room, true, false},
		"but planned once flavors have changed as well":                {byLack, flavored, true, true},
		"room without GPUs is nothing to a job that lacks GPUs":        {byGPUs, room, false, false},
		"GPUs that came are counted in the next pass":                  {byGPUs, gpuRoom, false, false},
		"and cure it if they are enough":                               {byGPUs, enough, true, true},
		"and not if they are too few":                                  {byGPUs, tooFew, false, false},
		"a change of a queue cures a lack of quota":                    {byQuota, config, true, true},
		"and of room": {byLack, config, true, true},
		"and of GPUs": {byGPUs, config, true, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8)
			e := s.entry(s.pending(job("a", set("node", 0, 2, 8))))
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.refuse(e, e.version, s.waits.seen, tc.cure, reason.New(reason.NoPlacement, "no")) || s.next() != nil {
				t.Fatal("it is due after it was refused")
			}
			tc.happens(s)
			b := s.next()
			if (b != nil) != tc.due {
				t.Fatalf("due is %v", b != nil)
			}
			if b != nil && (b.cure.lacks == nil) != tc.plansNow {
				t.Errorf("its lack is %+v", b.cure.lacks)
			}
		})
	}
}

func TestWhatHappensDuringATryHasTheJobTriedAgain(t *testing.T) {
	tests := map[string]struct {
		cure    cure
		happens func(*scene)
		settled bool
	}{
		"nothing":                            {cure{wait: forRoom}, func(*scene) {}, true},
		"room":                               {cure{wait: forRoom}, func(s *scene) { s.otherRoomCame() }, false},
		"room, for a job that lacks quota":   {cure{wait: forQuota}, func(s *scene) { s.roomCame() }, true},
		"a change of a queue":                {cure{wait: forQuota}, func(s *scene) { s.touch() }, false},
		"a release of quota":                 {cure{wait: forRoom}, func(s *scene) { s.released(s.quota.Root("cq")) }, false},
		"a change of quota by another actor": {cure{wait: forRoom}, func(s *scene) { s.mu.Unlock(); s.UpdateQuota(func(*quota.Tree) {}); s.mu.Lock() }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8)
			e := s.entry(s.pending(job("a", set("node", 0, 1, 8))))
			s.mu.Lock()
			defer s.mu.Unlock()
			seen := s.waits.seen
			tc.happens(s)
			if got := s.refuse(e, e.version, seen, tc.cure, reason.New(reason.NoPlacement, "no")); got != tc.settled {
				t.Errorf("settled is %v", got)
			}
			if got := s.next() == nil; got != tc.settled {
				t.Errorf("it waits: %v", got)
			}
		})
	}
}

func TestJobThatIsDearToPlanRestsBeforeRoomHasItPlannedAgain(t *testing.T) {
	s := testScene(t, 8)
	e := s.entry(s.pending(job("a", set("node", 0, 1, 8))))
	s.mu.Lock()
	defer s.mu.Unlock()
	b, byRoom, no := e.spot.bucket, cure{wait: forRoom, queue: "cq"}, reason.New(reason.NoPlacement, "no")
	seen := s.waits.seen
	s.otherRoomCame()
	b.rest(s.clock.Now(), 100*time.Millisecond, 20*time.Millisecond)
	if !s.refuse(e, e.version, seen, byRoom, no) || s.next() != nil {
		t.Fatal("it is planned again at once")
	}
	s.roomCame()
	s.clock.Step(1900 * time.Millisecond)
	if s.rested(); s.next() != nil {
		t.Error("it is planned again before it has rested")
	}
	s.clock.Step(200 * time.Millisecond)
	if s.rested(); s.next() != b {
		t.Error("it is not planned again, though room has come")
	}
	if !s.refuse(e, e.version, s.waits.seen, byRoom, no) {
		t.Fatal("it is due")
	}
	if s.rested(); s.next() != nil {
		t.Error("it is planned again, though nothing has happened since")
	}
	b.rest(s.clock.Now(), 100*time.Millisecond, 20*time.Millisecond)
	if s.touch(); s.next() != b {
		t.Error("a change of a queue waits for it to rest")
	}
	s.refuse(e, e.version, s.waits.seen, byRoom, no)
	b.rest(s.clock.Now(), 10*time.Millisecond, 20*time.Millisecond)
	if s.otherRoomCame(); s.next() != b {
		t.Error("a job that is cheap to plan rests as well")
	}
}

func TestJobThatRestsIsTriedWhenOtherFlavorsMayBeFree(t *testing.T) {
	for name, bite := range map[string]placement.Bite{
		"one that lacks GPUs":           {Resource: gpuResource, PerPod: 8},
		"one that lacks something else": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8)
			e := s.entry(s.pending(job("a", set("node", 0, 2, 8))))
			s.mu.Lock()
			defer s.mu.Unlock()
			b := e.spot.bucket
			b.head.choice = true
			b.rest(s.clock.Now(), 100*time.Millisecond, 20*time.Millisecond)
			lacks := curedByRoom("cq", &placement.Lack{Pods: 2, Bite: bite})
			if !s.refuse(e, e.version, s.waits.seen, lacks, reason.New(reason.NoPlacement, "no")) {
				t.Fatal("it is tried again at once")
			}
			s.released(s.quota.Root("cq"))
			if s.rested(); s.next() != nil {
				t.Fatal("it does not rest")
			}
			s.clock.Step(3 * time.Second)
			if s.rested(); s.next() != b {
				t.Fatal("it is not tried again, though quota of another flavor may have become free")
			}
			if b.cure.lacks != nil {
				t.Error("it is not planned as long as the flavors lack something that it was tried in")
			}
		})
	}
}
