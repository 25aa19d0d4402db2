package placement

import (
	"context"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// create makes a pod from its prototype, with the claims that the controllers
// would make for it.
func (c *cluster) create(tb fataler, prototype *v1.Pod, name string) *v1.Pod {
	tb.Helper()
	pod := prototype.DeepCopy()
	pod.Name, pod.UID = name, types.UID("real-"+name)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil {
			continue
		}
		claim := &v1.PersistentVolumeClaim{Spec: v.Ephemeral.VolumeClaimTemplate.Spec, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}}
		c.own(&claim.ObjectMeta, pod, ephemeral.VolumeClaimName(pod, v))
		if _, err := c.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Create(c.ctx, claim, metav1.CreateOptions{}); err != nil {
			tb.Fatalf("creating a volume claim: %v", err)
		}
		c.await(tb, func() bool { return c.volumeClaim(pod.Namespace, claim.Name) != nil })
	}
	for _, r := range pod.Spec.ResourceClaims {
		if r.ResourceClaimTemplateName == nil {
			continue
		}
		template, err := c.client.ResourceV1().ResourceClaimTemplates(pod.Namespace).Get(c.ctx, *r.ResourceClaimTemplateName, metav1.GetOptions{})
		if err != nil {
			tb.Fatalf("reading a template: %v", err)
		}
		claim := &resourceapi.ResourceClaim{Spec: template.Spec.Spec}
		c.own(&claim.ObjectMeta, pod, pod.Name+"-"+r.Name)
		if _, err := c.client.ResourceV1().ResourceClaims(pod.Namespace).Create(c.ctx, claim, metav1.CreateOptions{}); err != nil {
			tb.Fatalf("creating a resource claim: %v", err)
		}
		c.await(tb, func() bool { _, ok := c.deviceClaim(pod.Namespace, claim.Name); return ok })
		pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, v1.PodResourceClaimStatus{Name: r.Name, ResourceClaimName: &claim.Name})
	}
	return pod
}

func (c *cluster) own(meta *metav1.ObjectMeta, pod *v1.Pod, name string) {
	meta.Name, meta.Namespace, meta.UID, meta.ResourceVersion = name, pod.Namespace, types.UID("uid-"+name), c.nextVersion()
	meta.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))}
}

func (c *cluster) nextVersion() string {
	c.version++
	return strconv.Itoa(100 + c.version)
}

// volumeClaim is the claim as the informer has it, nil if it has none.
func (c *cluster) volumeClaim(namespace, name string) *v1.PersistentVolumeClaim {
	claim, err := c.factory.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return nil
	}
	return claim
}

// admit runs the scheduling cycle of one pod on one node up to Reserve, and
// returns how to go back; refusal says why there is no way on.
func (c *cluster) admit(pod *v1.Pod, node string) (state fwk.CycleState, undo func(), refusal string) {
	state = framework.NewCycleState()
	result, status, _ := c.fw.RunPreFilterPlugins(c.ctx, state, pod)
	if !status.IsSuccess() {
		return nil, nil, fmt.Sprintf("PreFilter: %v", status)
	}
	if !result.AllNodes() && !result.NodeNames.Has(node) {
		return nil, nil, fmt.Sprintf("PreFilter leaves only %v", result.NodeNames)
	}
	info, err := c.snap.Get(node)
	if err != nil {
		return nil, nil, err.Error()
	}
	if status := c.fw.RunFilterPlugins(c.ctx, state, pod, info); !status.IsSuccess() {
		return nil, nil, fmt.Sprintf("Filter: %v", status)
	}
	undo = func() {}
	if usesClaims(pod) {
		undo = func() { c.fw.RunReservePluginsUnreserve(c.ctx, state, pod, node) }
		if status := c.fw.RunReservePluginsReserve(c.ctx, state, pod, node); !status.IsSuccess() {
			undo()
			return nil, nil, fmt.Sprintf("Reserve: %v", status)
		}
	}
	return state, undo, ""
}

// bind schedules and binds one pod to the node, with what the controllers of
// volumes do for it, or returns why it cannot be.
func (c *cluster) bind(tb fataler, pod *v1.Pod, node string) (refusal string) {
	tb.Helper()
	state, _, refusal := c.admit(pod, node)
	if refusal != "" {
		return refusal
	}
	if usesClaims(pod) {
		if status := c.fw.RunPreBindPreFlights(c.ctx, state, pod, node); !status.IsSuccess() && !status.IsSkip() {
			return fmt.Sprintf("PreBindPreFlight: %v", status)
		}
		mounts := false
		for _, v := range pod.Spec.Volumes {
			mounts = mounts || isClaim(v)
		}
		if mounts {
			// VolumeBinding writes what it wants and then waits for the volume
			// controllers, which is cut short: they are a part of this test.
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			c.fw.RunPreBindPlugins(ctx, state, pod, node)
			c.bindVolumes(tb, pod, node)
		} else if status := c.fw.RunPreBindPlugins(c.ctx, state, pod, node); !status.IsSuccess() {
			return fmt.Sprintf("PreBind: %v", status)
		}
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	if err := c.sched.Cache.AddPod(klog.Logger{}, bound); err != nil {
		tb.Fatalf("adding pod %s: %v", pod.Name, err)
	}
	if err := c.sched.Cache.UpdateSnapshot(klog.Logger{}, c.snap); err != nil {
		tb.Fatalf("taking the snapshot: %v", err)
	}
	return ""
}

// bindVolumes binds each claim of the pod to the volume that the scheduler has
// chosen, or to one provisioned for the node: reached from the node's zone if
// the driver has zones, else from everywhere.
func (c *cluster) bindVolumes(tb fataler, pod *v1.Pod, node string) {
	tb.Helper()
	api := c.client.CoreV1()
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !isClaim(*v) {
			continue
		}
		name := ephemeral.VolumeClaimName(pod, v)
		if v.PersistentVolumeClaim != nil {
			name = v.PersistentVolumeClaim.ClaimName
		}
		claim, err := api.PersistentVolumeClaims(pod.Namespace).Get(c.ctx, name, metav1.GetOptions{})
		if err != nil {
			tb.Fatalf("reading claim %s: %v", name, err)
		}
		if claim.Spec.VolumeName != "" {
			continue
		}
		all, err := api.PersistentVolumes().List(c.ctx, metav1.ListOptions{})
		if err != nil {
			tb.Fatalf("listing volumes: %v", err)
		}
		var pv *v1.PersistentVolume
		for i := range all.Items {
			if ref := all.Items[i].Spec.ClaimRef; ref != nil && ref.Name == name {
				pv = &all.Items[i]
			}
		}
		if pv == nil {
			if claim.Annotations[volume.AnnSelectedNode] != node {
				tb.Fatalf("claim %s has no volume and node %q is selected for it", name, claim.Annotations[volume.AnnSelectedNode])
			}
			pv = makeVolume("provisioned-"+name, *claim.Spec.StorageClassName, "", "")
			if zone := c.zoneOf(tb, node); c.zonal {
				pv.Spec.NodeAffinity = reachedFrom("zone", zone)
			}
			if _, err := api.PersistentVolumes().Create(c.ctx, pv, metav1.CreateOptions{}); err != nil {
				tb.Fatalf("provisioning: %v", err)
			}
		}
		pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
		pv.Status.Phase = v1.VolumeBound
		pv.ResourceVersion = c.nextVersion()
		claim.Spec.VolumeName = pv.Name
		claim.Status.Phase = v1.ClaimBound
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBindCompleted, "yes")
		claim.ResourceVersion = c.nextVersion()
		if _, err := api.PersistentVolumes().Update(c.ctx, pv, metav1.UpdateOptions{}); err != nil {
			tb.Fatalf("binding volume %s: %v", pv.Name, err)
		}
		if _, err := api.PersistentVolumeClaims(claim.Namespace).Update(c.ctx, claim, metav1.UpdateOptions{}); err != nil {
			tb.Fatalf("binding claim %s: %v", name, err)
		}
		c.await(tb, func() bool {
			got, err := c.factory.Core().V1().PersistentVolumes().Lister().Get(pv.Name)
			seen := c.volumeClaim(claim.Namespace, name)
			return err == nil && got.ResourceVersion == pv.ResourceVersion && seen != nil && seen.ResourceVersion == claim.ResourceVersion
		})
	}
}

func (c *cluster) zoneOf(tb fataler, node string) string {
	info, err := c.snap.Get(node)
	if err != nil {
		tb.Fatalf("node %s: %v", node, err)
	}
	return info.Node().Labels["zone"]
}

// oneByOne looks for a way to bind the pods of a gang one by one, in any order:
// exhaustively while its budget lasts.
type oneByOne struct {
	*cluster
	tb fataler
	// pods are the pods of each class, used is how many are placed.
	pods [][]*v1.Pod
	used []int
	// seen are the placements that have led nowhere.
	seen   map[string]bool
	at     map[string]int
	budget int
	order  []int
}

// found says whether there is a way; sure is false if the budget was spent.
func (s *oneByOne) found() (found, sure bool) {
	ok := s.place()
	return ok, ok || s.budget > 0
}

func (s *oneByOne) place() bool {
	left := 0
	for i := range s.pods {
		left += len(s.pods[i]) - s.used[i]
	}
	if left == 0 {
		return true
	}
	key := fmt.Sprint(s.at)
	if s.budget <= 0 || s.seen[key] {
		return false
	}
	s.seen[key] = true
	s.budget--
	nodes, err := s.snap.List()
	if err != nil {
		s.tb.Fatalf("listing nodes: %v", err)
	}
	for i := range s.pods {
		if s.used[i] == len(s.pods[i]) {
			continue
		}
		pod := s.pods[i][s.used[i]]
		for j := range nodes {
			node := nodes[s.order[j]].Node().Name
			_, undo, refusal := s.admit(pod, node)
			if refusal != "" {
				continue
			}
			placed := *pod
			placed.Spec.NodeName = node
			info, err := framework.NewPodInfo(&placed)
			if err != nil {
				s.tb.Fatalf("%v", err)
			}
			if err := s.snap.AssumePod(info); err != nil {
				s.tb.Fatalf("%v", err)
			}
			place := fmt.Sprintf("%d %s", i, node)
			s.used[i]++
			s.at[place]++
			ok := s.place()
			s.at[place]--
			s.used[i]--
			if err := s.snap.ForgetPod(klog.Logger{}, &placed); err != nil {
				s.tb.Fatalf("%v", err)
			}
			undo()
			if ok {
				return true
			}
		}
	}
	return false
}
