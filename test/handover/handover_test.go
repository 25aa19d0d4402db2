package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	namespace = "team"
	queue     = "kueue.x-k8s.io/queue-name"
	product   = "NVIDIA-H100-80GB-HBM3"
)

// TestHandOver starts ten jobs of four kinds under Kueue, lets Muster take over,
// and gives them back. None of their pods is made again, moved or restarted.
func TestHandOver(t *testing.T) {
	c := up(t)
	ctx := t.Context()
	c.queue(t)
	var jobs []client.Object
	for i := range 4 {
		jobs = append(jobs, trainJob(fmt.Sprintf("train-%d", i), 2, 1))
	}
	for i := range 3 {
		jobs = append(jobs, jobSet(fmt.Sprintf("set-%d", i), 2, 1))
	}
	jobs = append(jobs, batchJob("batch-0", 2, 1), batchJob("batch-1", 2, 1), plainPod("pod-0", 1))
	for _, j := range jobs {
		if err := c.Create(ctx, j); err != nil {
			t.Fatalf("creating %s: %v", j.GetName(), err)
		}
	}
	const pods = 4*2 + 3*2 + 2*2 + 1
	var before map[string]string
	eventually(t, "all pods to run", func(ctx context.Context) (err error) {
		before, err = c.runningPods(ctx)
		if err == nil && len(before) != pods {
			err = fmt.Errorf("%d of %d pods run", len(before), pods)
		}
		return err
	})
	// One more waits for quota, with Kueue's reason.
	waiting := trainJob("waiting", 4, 8)
	if err := c.Create(ctx, waiting); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a Workload of the job that waits", func(ctx context.Context) error {
		wl, err := c.workloadOf(ctx, "waiting")
		if err == nil && apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
			return errors.New("it is admitted")
		}
		return err
	})

	t.Run("Kueue goes and Muster takes over", func(t *testing.T) {
		registered := c.registered(t)
		if err := c.Kill(ctx, "kueue"); err != nil {
			t.Fatal(err)
		}
		if out, err := c.doctor(ctx, t); err == nil {
			t.Errorf("the doctor finds nothing wrong right after Kueue was killed:\n%s", out)
		}
		url := c.webhookURL(t)
		eventually(t, "the doctor to mend what Kueue left behind", func(ctx context.Context) error {
			out, err := c.doctor(ctx, t, "--fix", "--webhook-url", url)
			if err != nil {
				return fmt.Errorf("%w:\n%s", err, out)
			}
			return nil
		})
		c.decides(t, "native")
		next := trainJob("after", 1, 8)
		if err := c.Create(ctx, next); err != nil {
			t.Fatal(err)
		}
		c.admittedBy(t, "after", "scheduler")
		eventually(t, "the nodes of the running jobs to be in their Workloads", func(ctx context.Context) error {
			for _, j := range jobs {
				wl, err := c.workloadOf(ctx, j.GetName())
				if err != nil {
					return err
				}
				if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) || wl.Status.Admission == nil ||
					wl.Status.Admission.PodSetAssignments[0].TopologyAssignment == nil {
					return fmt.Errorf("the status of Workload %s is %+v", wl.Name, wl.Status)
				}
			}
			return nil
		})
		eventually(t, "the queue's status to be Muster's", func(ctx context.Context) error {
			cq := &kueue.ClusterQueue{}
			if err := c.Get(ctx, client.ObjectKey{Name: "main"}, cq); err != nil {
				return err
			}
			if cq.Status.AdmittedWorkloads != 11 || cq.Status.PendingWorkloads != 1 {
				return fmt.Errorf("%d are admitted and %d pending, want 11 and 1", cq.Status.AdmittedWorkloads, cq.Status.PendingWorkloads)
			}
			return nil
		})
		c.same(t, before)
		older(t, c)
		c.delete(t, next)
		c.register(t, registered)
	})

	t.Run("Muster steps back and Kueue takes over", func(t *testing.T) {
		c.decides(t, "kueue")
		c.RestartNow(t, "kueue")
		next := trainJob("again", 1, 8)
		eventually(t, "Kueue to take jobs", func(ctx context.Context) error { return c.Create(ctx, next) })
		c.admittedBy(t, "again", "kueue")
		c.same(t, before)
		c.delete(t, next)
	})

	t.Run("nothing of the jobs stays when they are deleted", func(t *testing.T) {
		for _, j := range append(jobs, waiting) {
			c.delete(t, j)
		}
		eventually(t, "pods and Workloads to be gone", func(ctx context.Context) error {
			pods, workloads := &corev1.PodList{}, &kueue.WorkloadList{}
			if err := errors.Join(c.List(ctx, pods, client.InNamespace(namespace)), c.List(ctx, workloads, client.InNamespace(namespace))); err != nil {
				return err
			}
			if len(pods.Items)+len(workloads.Items) > 0 {
				return fmt.Errorf("%d pods and %d Workloads are there", len(pods.Items), len(workloads.Items))
			}
			return nil
		})
	})
}

// older creates a queue as the older version of the API has it, and reads it in
// the newer one: Kueue, which converts it otherwise, is gone.
func older(t *testing.T, c *cluster) {
	t.Helper()
	cq := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": map[string]any{"name": "older"},
		"spec": map[string]any{"cohort": "all"},
	}}
	eventually(t, "v1beta1 to be served", func(ctx context.Context) error { return c.Create(ctx, cq) })
	got := &kueue.ClusterQueue{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "older"}, got); err != nil || got.Spec.CohortName != "all" {
		t.Errorf("its cohort is %q (%v)", got.Spec.CohortName, err)
	}
	c.delete(t, got)
}

// queue makes 32 GPUs of quota, all that there are, for the namespace.
func (c *cluster) queue(t *testing.T) {
	t.Helper()
	gpu := corev1.ResourceName("nvidia.com/gpu")
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "h100"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"nvidia.com/gpu.product": product}}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{gpu},
				Flavors:          []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: resource.MustParse("32")}}}},
			}},
		}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "main"}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %T: %v", o, err)
		}
	}
}

// runningPods are the pods of the namespace that run, by name: which one it is,
// where, and how often it was restarted.
func (c *cluster) runningPods(ctx context.Context) (map[string]string, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		restarts := int32(0)
		for _, s := range p.Status.ContainerStatuses {
			restarts += s.RestartCount
		}
		out[p.Name] = fmt.Sprintf("%s on %s, restarted %d times", p.UID, p.Spec.NodeName, restarts)
	}
	return out, nil
}

// same fails the test unless the pods that ran before run, as they were, and no
// other of their jobs is there; and unless no job is suspended.
func (c *cluster) same(t *testing.T, before map[string]string) {
	t.Helper()
	now, err := c.runningPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range now {
		if strings.HasPrefix(name, "after-") || strings.HasPrefix(name, "again-") {
			delete(now, name)
		}
	}
	if diff := cmp.Diff(before, now); diff != "" {
		t.Errorf("running pods (-before +now):\n%s", diff)
	}
	events := &corev1.EventList{}
	if err := c.List(t.Context(), events, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if slices.Contains([]string{"Stopped", "Evicted", "Preempted"}, e.Reason) || strings.HasPrefix(e.Reason, "EvictedDueTo") {
			t.Errorf("event %s on %s %s: %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
		}
	}
}

// workloadOf is the Workload of a job.
func (c *cluster) workloadOf(ctx context.Context, job string) (*kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if o := metav1.GetControllerOf(&list.Items[i]); o != nil && o.Name == job {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("%s has no Workload", job)
}

// admittedBy waits until a job of one pod runs, and checks who has admitted it:
// what the name of its field manager begins with.
func (c *cluster) admittedBy(t *testing.T, job, manager string) {
	t.Helper()
	eventually(t, job+" to run", func(ctx context.Context) error {
		running, err := c.runningPods(ctx)
		if err != nil {
			return err
		}
		for name := range running {
			if strings.HasPrefix(name, job+"-") {
				return nil
			}
		}
		wl, err := c.workloadOf(ctx, job)
		if err != nil {
			return err
		}
		return fmt.Errorf("it does not: %+v", wl.Status)
	})
	wl, err := c.workloadOf(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range wl.ManagedFields {
		if f.Subresource == "status" && !strings.HasPrefix(f.Manager, manager) {
			t.Errorf("the status of Workload %s was written by %s, want %s alone", wl.Name, f.Manager, manager)
		}
	}
}

func (c *cluster) delete(t *testing.T, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		t.Fatalf("deleting %s: %v", o.GetName(), err)
	}
}

// registration is what Kueue's installation has in the cluster so that it is
// asked.
type registration struct {
	validating  admissionregistrationv1.ValidatingWebhookConfiguration
	mutating    admissionregistrationv1.MutatingWebhookConfiguration
	conversions map[string]*apiextensionsv1.CustomResourceConversion
}

func (c *cluster) registered(t *testing.T) *registration {
	t.Helper()
	r := &registration{conversions: map[string]*apiextensionsv1.CustomResourceConversion{}}
	definitions := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := errors.Join(
		c.Get(t.Context(), client.ObjectKey{Name: "kueue-validating-webhook-configuration"}, &r.validating),
		c.Get(t.Context(), client.ObjectKey{Name: "kueue-mutating-webhook-configuration"}, &r.mutating),
		c.List(t.Context(), definitions),
	); err != nil {
		t.Fatal(err)
	}
	for i := range definitions.Items {
		if d := &definitions.Items[i]; d.Spec.Group == kueue.SchemeGroupVersion.Group {
			r.conversions[d.Name] = d.Spec.Conversion
		}
	}
	return r
}

// register does what installing Kueue again does.
func (c *cluster) register(t *testing.T, r *registration) {
	t.Helper()
	for name, conversion := range r.conversions {
		eventually(t, "the conversion of "+name, func(ctx context.Context) error {
			d := &apiextensionsv1.CustomResourceDefinition{}
			if err := c.Get(ctx, client.ObjectKey{Name: name}, d); err != nil {
				return err
			}
			d.Spec.Conversion = conversion
			return c.Update(ctx, d)
		})
	}
	r.validating.ResourceVersion, r.mutating.ResourceVersion = "", ""
	if err := errors.Join(c.Create(t.Context(), &r.validating), c.Create(t.Context(), &r.mutating)); err != nil {
		t.Fatal(err)
	}
}

func trainJob(name string, nodes, gpus int64) client.Object {
	amount := map[string]any{"nvidia.com/gpu": fmt.Sprint(gpus)}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{queue: "main"}},
		"spec": map[string]any{
			"runtimeRef": map[string]any{"name": "torch-distributed"},
			"trainer":    map[string]any{"numNodes": nodes, "resourcesPerNode": map[string]any{"limits": amount, "requests": amount}},
		},
	}}
}

func podSpec(gpus int64) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{
			Name: "train", Image: "example.com/train",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}},
		}},
	}
}

func jobSpec(pods int32, gpus int64) batchv1.JobSpec {
	return batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion),
		Template: corev1.PodTemplateSpec{Spec: podSpec(gpus)},
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{queue: "main"}}
}

func jobSet(name string, pods int32, gpus int64) client.Object {
	return &jobset.JobSet{ObjectMeta: meta(name), Spec: jobset.JobSetSpec{ReplicatedJobs: []jobset.ReplicatedJob{
		{Name: "node", Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: jobSpec(pods, gpus)}},
	}}}
}

func batchJob(name string, pods int32, gpus int64) client.Object {
	return &batchv1.Job{ObjectMeta: meta(name), Spec: jobSpec(pods, gpus)}
}

func plainPod(name string, gpus int64) client.Object {
	return &corev1.Pod{ObjectMeta: meta(name), Spec: podSpec(gpus)}
}
