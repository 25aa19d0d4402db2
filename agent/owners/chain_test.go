package owners

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/workload"
)

// cluster has objects in namespace ml, and for some of them Workloads.
type cluster struct {
	objects   []runtime.Object
	workloads []runtime.Object
}

func ref(apiVersion, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true)}
}

// object adds one, which has that owner, and labels and annotations in turn.
func (c *cluster) object(apiVersion, kind, name string, owner *metav1.OwnerReference, labels, annotations map[string]string) {
	o := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID("uid-" + name), Labels: labels, Annotations: annotations},
	}
	if owner != nil {
		o.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	c.objects = append(c.objects, o)
}

// admitted adds the Workload of an owner, in that ClusterQueue.
func (c *cluster) admitted(apiVersion, kind, name, queue string) {
	c.workloads = append(c.workloads, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
		"metadata": map[string]any{"namespace": "ml", "name": workload.WorkloadName(workload.Owner{
			GroupVersionKind: schema.FromAPIVersionAndKind(apiVersion, kind), NamespacedName: types.NamespacedName{Namespace: "ml", Name: name}, UID: types.UID("uid-" + name),
		})},
		"status": map[string]any{"admission": map[string]any{"clusterQueue": queue}},
	}})
}

func (c *cluster) chain(fails func(resource string) error) chain {
	scheme := runtime.NewScheme()
	_ = metav1.AddMetaToScheme(scheme)
	reader := metadatafake.NewSimpleMetadataClient(scheme, c.objects...)
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{workloads: "WorkloadList"}, c.workloads...)
	for _, fake := range []*clienttesting.Fake{&reader.Fake, &objects.Fake} {
		fake.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			err := fails(a.GetResource().Resource)
			return err != nil, nil, err
		})
	}
	return chain{reader: reader, objects: objects}
}

func gpuPod(owner *metav1.OwnerReference, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "pod", UID: "uid-pod", Labels: labels, Annotations: map[string]string{"a": "pod", "b": "pod"}}}
	one := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	p.Spec.Containers = []corev1.Container{{Name: "x", Resources: corev1.ResourceRequirements{Requests: one}}}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return p
}

// ofJobSet are the labels of a pod of a JobSet.
var ofJobSet = map[string]string{jobset.JobSetUIDKey: "uid-llm", jobset.ReplicatedJobNameKey: "node", jobset.JobIndexKey: "0"}

func TestWhatAPodIsPartOf(t *testing.T) {
	queued := map[string]string{workload.QueueLabel: "lq"}
	own := func(r metav1.OwnerReference) *metav1.OwnerReference { return &r }
	both := map[string]string{"a": "pod", "b": "pod"}
	trainJob := func(c *cluster) *metav1.OwnerReference {
		c.object("batch/v1", "Job", "llm-node-0", own(ref("jobset.x-k8s.io/v1alpha2", "JobSet", "llm")), nil, nil)
		c.object("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", own(ref("trainer.kubeflow.org/v1alpha1", "TrainJob", "llm")), nil, nil)
		c.object("trainer.kubeflow.org/v1alpha1", "TrainJob", "llm", nil, queued, map[string]string{"a": "job"})
		c.admitted("trainer.kubeflow.org/v1alpha1", "TrainJob", "llm", "research")
		return own(ref("batch/v1", "Job", "llm-node-0"))
	}
	never := func(string) error { return nil }
	for name, tc := range map[string]struct {
		scene func(c *cluster) *metav1.OwnerReference
		label map[string]string
		fails func(string) error
		want  job
	}{
		"a pod alone": {
			scene: func(c *cluster) *metav1.OwnerReference { c.admitted("v1", "Pod", "pod", "research"); return nil },
			label: queued,
			want:  job{kind: "Pod", name: "pod", uid: "uid-pod", queue: "research", annotations: both},
		},
		"a pod that nobody has admitted": {
			scene: func(*cluster) *metav1.OwnerReference { return nil },
			want:  job{kind: "Pod", name: "pod", uid: "uid-pod", annotations: both},
		},
		"a pod of a TrainJob, whose annotations come before the pod's": {
			scene: trainJob,
			label: ofJobSet,
			want:  job{kind: "TrainJob", name: "llm", uid: "uid-llm", queue: "research", annotations: map[string]string{"a": "job", "b": "pod"}},
		},
		"a pod of a CronJob's Job, which is queued itself": {
			scene: func(c *cluster) *metav1.OwnerReference {
				c.object("batch/v1", "Job", "nightly-1", own(ref("batch/v1", "CronJob", "nightly")), queued, nil)
				c.object("batch/v1", "CronJob", "nightly", nil, nil, nil)
				c.admitted("batch/v1", "Job", "nightly-1", "research")
				return own(ref("batch/v1", "Job", "nightly-1"))
			},
			want: job{kind: "CronJob", name: "nightly", uid: "uid-nightly-1", queue: "research", annotations: both},
		},
		"a notebook": {
			scene: func(c *cluster) *metav1.OwnerReference {
				c.object("apps/v1", "StatefulSet", "nb", own(ref("kubeflow.org/v1", "Notebook", "nb")), nil, nil)
				c.object("kubeflow.org/v1", "Notebook", "nb", nil, nil, nil)
				c.admitted("v1", "Pod", "pod", "interactive")
				return own(ref("apps/v1", "StatefulSet", "nb"))
			},
			label: queued,
			want:  job{kind: "Notebook", name: "nb", uid: "uid-pod", queue: "interactive", annotations: both},
		},
		"an owner of a kind that may not be read": {
			scene: func(*cluster) *metav1.OwnerReference { return own(ref("example.com/v1", "Simulation", "s")) },
			label: map[string]string{"batch.kubernetes.io/controller-uid": "uid-s"},
			fails: func(resource string) error {
				if resource == "simulations" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "s", errors.New("no rule"))
				}
				return nil
			},
			want: job{kind: "Simulation", name: "s", uid: "uid-pod", annotations: both},
		},
		"an owner that is another one of that name": {
			scene: func(c *cluster) *metav1.OwnerReference {
				c.object("batch/v1", "Job", "j", own(ref("batch/v1", "CronJob", "later")), queued, nil)
				was := ref("batch/v1", "Job", "j")
				was.UID = "uid-before"
				return &was
			},
			want: job{kind: "Job", name: "j", uid: "uid-before", annotations: both},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{}
			pod := gpuPod(tc.scene(c), tc.label)
			if tc.fails == nil {
				tc.fails = never
			}
			got, err := c.chain(tc.fails).of(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(job{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, away := range []string{"jobsets", "workloads"} {
		c := &cluster{}
		pod := gpuPod(trainJob(c), ofJobSet)
		_, err := c.chain(func(resource string) error {
			if resource == away {
				return apierrors.NewServiceUnavailable("away")
			}
			return nil
		}).of(t.Context(), pod)
		if err == nil {
			t.Errorf("without %s, half of the chain is believed", away)
		}
	}
}
