package queueing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// gpus are the containers of a pod of which the second asks for a resource.
func gpus(name, quantity string) string {
	return `"containers":[{"name":"sidecar"},{"name":"train","resources":{"limits":{"cpu":"1","` + name + `":` + quantity + `}}}]`
}

func jobOf(podSpec string) string {
	return `{"metadata":{},"spec":{"template":{"spec":{` + podSpec + `}}}}`
}

func jobSetOf(podSpec string) string {
	return `{"metadata":{},"spec":{"replicatedJobs":[
		{"template":{"spec":{"template":{"spec":{"containers":[{"name":"launcher"}]}}}}},
		{"template":{"spec":{"template":{"spec":{` + podSpec + `}}}}}]}}`
}

func TestJobsThatNameNoQueueGoToTheDefaultOne(t *testing.T) {
	const (
		newLabels = `{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"default"}}`
		label     = `{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"default"}`
		suspend   = `{"op":"add","path":"/spec/suspend","value":true}`
		stampJob  = `{"op":"add","path":"/spec/template/spec/schedulerName","value":"muster"}`
	)
	stampJobSet := func(i string) string {
		return `{"op":"add","path":"/spec/replicatedJobs/` + i + `/template/spec/template/spec/schedulerName","value":"muster"}`
	}
	gpu := gpus("nvidia.com/gpu", `"8"`)
	tests := map[string]struct {
		kind   schema.GroupKind
		object string
		want   []string
	}{
		"a TrainJob, whatever it asks for": {TrainJob, `{"metadata":{},"spec":{}}`, []string{newLabels, suspend}},
		"a TrainJob with other labels":     {TrainJob, `{"metadata":{"labels":{"app":"x"}},"spec":{}}`, []string{label, suspend}},
		"a TrainJob with an empty queue":   {TrainJob, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":""}},"spec":{}}`, []string{label, suspend}},
		"a TrainJob whose labels are null": {TrainJob, `{"metadata":{"labels":null},"spec":{}}`, []string{newLabels, suspend}},
		"a suspended TrainJob":             {TrainJob, `{"metadata":{},"spec":{"suspend":true}}`, []string{newLabels}},
		"not a TrainJob with a queue":      {TrainJob, `{"metadata":{` + queued + `},"spec":{"suspend":true}}`, nil},
		"not another controller's":         {TrainJob, `{"metadata":{},"spec":{"managedBy":"kueue.x-k8s.io/multikueue"}}`, nil},
		"not a TrainJob without a spec":    {TrainJob, `{"metadata":{}}`, nil},
		"not an object without metadata":   {TrainJob, `{"spec":{}}`, nil},
		"a Job with GPUs":                  {Job, jobOf(gpu), []string{newLabels, suspend, stampJob}},
		"a Job with a GPU in figures":      {Job, jobOf(gpus("amd.com/gpu", `1`)), []string{newLabels, suspend, stampJob}},
		"a Job with a slice of a GPU":      {Job, jobOf(gpus("nvidia.com/mig-1g.10gb", `1`)), []string{newLabels, suspend, stampJob}},
		"a Job whose init container asks": {
			Job, jobOf(`"initContainers":[{"resources":{"limits":{"nvidia.com/gpu":1}}}],"containers":[{"name":"c"}]`), []string{newLabels, suspend, stampJob}},
		"a Job of a CronJob": {
			Job, `{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"CronJob","name":"x","uid":"u","controller":true}]},"spec":{"template":{"spec":{` + gpu + `}}}}`,
			[]string{newLabels, suspend, stampJob}},
		"not a Job of a JobSet": {
			Job, `{"metadata":{` + ownedByJobSet + `},"spec":{"template":{"spec":{` + gpu + `}}}}`, nil},
		"not a Job without GPUs":                 {Job, jobOf(`"containers":[{"name":"c"}]`), nil},
		"not a Job of no GPUs":                   {Job, jobOf(gpus("nvidia.com/gpu", `"0"`)), nil},
		"not a Job that counts parts of GPUs":    {Job, jobOf(gpus("nvidia.com/gpumem", `1`)), nil},
		"not a Job that names another scheduler": {Job, jobOf(`"schedulerName":"volcano",` + gpu), nil},
		"not a Job without a template":           {Job, `{"metadata":{},"spec":{}}`, nil},
		"a Job that names Muster":                {Job, jobOf(`"schedulerName":"muster",` + gpu), []string{newLabels, suspend}},
		"a Job with the API server's default":    {Job, jobOf(`"schedulerName":"default-scheduler",` + gpu), []string{newLabels, suspend, stampJob}},
		"a JobSet with GPUs in one of its jobs":  {JobSet, jobSetOf(gpu), []string{newLabels, suspend, stampJobSet("0"), stampJobSet("1")}},
		"not a JobSet without GPUs":              {JobSet, jobSetOf(`"containers":[{"name":"c"}]`), nil},
		"not a JobSet that names a scheduler":    {JobSet, jobSetOf(`"schedulerName":"default-scheduler",` + gpu), nil},
		"not a JobSet of a TrainJob": {
			JobSet, `{"metadata":{` + ownedByTrainJob + `},"spec":{"replicatedJobs":[{"template":{"spec":{"template":{"spec":{` + gpu + `}}}}}]}}`, nil},
		"a PyTorchJob with GPUs": {pyTorchJob, `{"metadata":{},"spec":{"runPolicy":{},"pytorchReplicaSpecs":{"Worker":{"template":{"spec":{` + gpu + `}}}}}}`,
			[]string{newLabels, `{"op":"add","path":"/spec/runPolicy/suspend","value":true}`, `{"op":"add","path":"/spec/pytorchReplicaSpecs/Worker/template/spec/schedulerName","value":"muster"}`}},
		"not a PyTorchJob without GPUs":     {pyTorchJob, `{"metadata":{},"spec":{"pytorchReplicaSpecs":{"Worker":{"template":{"spec":{"containers":[{"name":"c"}]}}}}}}`, nil},
		"not a Job of an MPIJob":            {Job, `{"metadata":{` + ownedByMPIJob + `},"spec":{"template":{"spec":{` + gpu + `}}}}`, nil},
		"not a pod: the scheduler knows it": {Pod, `{"metadata":{},"spec":{` + gpu + `}}`, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object, err := Parse(tc.kind, []byte(tc.object))
			if err != nil {
				t.Fatal(err)
			}
			if got := NeedsDefaultQueue(object, scheduler); got != (tc.want != nil) {
				t.Errorf("NeedsDefaultQueue = %v", got)
			}
			var got []string
			for _, op := range Decide(object, Surroundings{SchedulerName: scheduler, DefaultQueue: "default"}) {
				got = append(got, op.Json())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if patch := Decide(object, Surroundings{SchedulerName: scheduler}); object.Queue() == "" && len(patch) > 0 {
				t.Errorf("patch without a default queue: %v", patch)
			}
		})
	}
}
