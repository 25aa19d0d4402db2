package defaults

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// pods draws pods with any of the parts that RuntimeDefaults may add, and with
// parts of which this package knows nothing.
func pods(t *rapid.T) map[string]any {
	maybe := func(fields map[string]any, key string, values ...any) {
		if i := rapid.IntRange(0, len(values)).Draw(t, key); i > 0 {
			fields[key] = values[i-1]
		}
	}
	list := func(items ...any) []any { return items }
	variable := func(name string) any { return map[string]any{"name": name, "value": "mine"} }
	container := func(name string) any {
		c := map[string]any{"name": name, "image": "train", "newField": map[string]any{"x": []any{int64(1)}}}
		maybe(c, "resources",
			map[string]any{"limits": map[string]any{"nvidia.com/gpu": int64(2), "memory": "1Gi"}},
			map[string]any{"requests": map[string]any{"amd.com/gpu": "1"}, "newField": "y"},
			map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1", "rdma/hca": "3"}}, map[string]any{})
		maybe(c, "env", list(), list(variable("A")), list(variable("OMPI_MCA_orte_default_hostfile"), variable("B")),
			list(variable("OMPI_MCA_orte_default_hostfile"), variable("OMPI_MCA_mca_base_env_list")), nil)
		maybe(c, "envFrom", list(map[string]any{"secretRef": map[string]any{"name": "s"}}))
		maybe(c, "volumeMounts", list(map[string]any{"name": "v", "mountPath": "/dev/shm/"}), list(map[string]any{"name": "v", "mountPath": "/w"}))
		maybe(c, "securityContext", map[string]any{}, map[string]any{"privileged": true}, map[string]any{"capabilities": map[string]any{"drop": list("IPC_LOCK")}},
			map[string]any{"capabilities": map[string]any{"add": list("SYS_NICE")}})
		maybe(c, "imagePullPolicy", "Always", "IfNotPresent")
		return c
	}
	spec := map[string]any{"containers": list(container("node"), container("sidecar")), "newField": true}
	maybe(spec, "initContainers", list(container("check")), nil)
	maybe(spec, "volumes", list(map[string]any{"name": "v", "emptyDir": map[string]any{}}), list(map[string]any{"name": "muster-shm", "emptyDir": map[string]any{}}))
	maybe(spec, "tolerations", list(map[string]any{"operator": "Exists"}), list(map[string]any{"key": "a", "value": "b"}), list())
	maybe(spec, "priorityClassName", "high", "low")
	maybe(spec, "priority", int64(5))
	maybe(spec, "schedulerName", "volcano", "default-scheduler", "")
	maybe(spec, "runtimeClassName", "gvisor")
	maybe(spec, "terminationGracePeriodSeconds", int64(30), int64(0))
	pod := map[string]any{"spec": spec, "status": map[string]any{}}
	metadata := map[string]any{"name": "p"}
	maybe(metadata, "labels", map[string]any{"a": "b"}, map[string]any{}, nil)
	maybe(metadata, "annotations", map[string]any{Annotation: "{odd"}, map[string]any{"n": "m"})
	maybe(pod, "metadata", metadata, nil)
	return pod
}

// wishes draws RuntimeDefaults that want some of everything.
func wishes(t *rapid.T) []*v1alpha1.RuntimeDefaults {
	parts := []string{
		`"class":"required"`, `"weight":5`,
		`"pod":{"labels":{"a":"c","d":"e"},"annotations":{"n":"o"},"tolerations":[{"key":"a","operator":"Exists","effect":"NoSchedule"},{"key":"a","value":"b"}],"priorityClassName":"high"}`,
		`"pod":{"schedulerName":"muster","runtimeClassName":"nvidia","terminationGracePeriodSeconds":60,"priorityClassName":"none"}`,
		`"containers":{"env":[{"name":"A","value":"x"},{"name":"B","value":""}],"sharedMemory":{"memoryPercent":50},"capabilities":["IPC_LOCK","SYS_NICE"]}`,
		`"containers":{"names":["sidecar"],"env":[{"name":"C","value":"z"}],"resources":[{"name":"rdma/hca","count":1,"perGPU":true}],"imagePullPolicy":"Always","sharedMemory":{"sizeLimit":"1Gi"}}`,
	}
	var all []*v1alpha1.RuntimeDefaults
	for i := range rapid.IntRange(1, 3).Draw(t, "wishes") {
		spec := "{"
		for n, part := range parts {
			if rapid.Bool().Draw(t, fmt.Sprint("part", n)) {
				if spec != "{" {
					spec += ","
				}
				spec += part
			}
		}
		d := &v1alpha1.RuntimeDefaults{}
		d.Name, d.Generation = fmt.Sprintf("d%d", i), int64(i)
		if err := json.Unmarshal([]byte(spec+"}"), &d.Spec); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

func TestNothingIsRemovedOrReplacedAndASecondRunChangesNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		pod, all := pods(r), wishes(r)
		raw, err := json.Marshal(pod)
		if err != nil {
			r.Fatal(err)
		}
		around := Around{PriorityClasses: sets.New("high"), RuntimeClasses: sets.New("nvidia"), Defaulted: rapid.Bool().Draw(r, "defaulted")}
		d, out := stampRaw(r, raw, all, around)
		after := applied(t, raw, lines(t, d))
		var got, want any
		if err := json.Unmarshal(after, &got); err != nil {
			r.Fatal(err)
		}
		inMemory, _ := json.Marshal(d.root)
		if err := json.Unmarshal(inMemory, &want); err != nil {
			r.Fatal(err)
		}
		if !reflect.DeepEqual(want, got) {
			r.Fatalf("the patch makes\n%s\nand the document is\n%s", after, inMemory)
		}
		var before any
		if err := json.Unmarshal(raw, &before); err != nil {
			r.Fatal(err)
		}
		kept(r, "", before, got, around.Defaulted)
		if again, _ := stampRaw(r, after, all, around); len(again.Patch()) > 0 {
			r.Fatalf("a second run changes %v of %s", again.Patch(), after)
		}
		for _, d := range all {
			if !required(d) {
				continue
			}
			return
		}
		if len(out.Refusals) > 0 {
			r.Fatalf("refused by nobody who may: %v", out.Refusals)
		}
	})
}

func stampRaw(r *rapid.T, raw []byte, all []*v1alpha1.RuntimeDefaults, around Around) (*Document, Outcome) {
	d, err := Read(raw)
	if err != nil {
		r.Fatal(err)
	}
	template, err := d.Pod()
	if err != nil {
		r.Fatal(err)
	}
	return d, d.Stamp(template, Choose(all, Subject{}, template.Pod.Labels), around)
}

// kept fails unless all that was there is there, lists in the same order: but for
// what the API server computes, its defaults, the record, and nothing at all.
func kept(r *rapid.T, where string, before, after any, defaulted bool) {
	switch before := before.(type) {
	case map[string]any:
		now, ok := after.(map[string]any)
		if !ok {
			r.Fatalf("%s is %v", where, after)
		}
		for key, value := range before {
			field := where + "/" + key
			switch {
			case field == "/spec/priority" && before["priorityClassName"] == nil:
			case key == Annotation, value == nil, value == "":
			case defaulted && (value == "default-scheduler" || value == float64(30) || key == "imagePullPolicy"):
			default:
				kept(r, field, value, now[key], defaulted)
			}
		}
	case []any:
		now, ok := after.([]any)
		if !ok || len(now) < len(before) {
			r.Fatalf("%s is %v, and was %v", where, after, before)
		}
		for i := range before {
			kept(r, fmt.Sprintf("%s/%d", where, i), before[i], now[i], defaulted)
		}
	default:
		if !reflect.DeepEqual(before, after) {
			r.Fatalf("%s is %v, and was %v", where, after, before)
		}
	}
}
