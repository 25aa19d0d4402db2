package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-gpu/muster/admission/defaults"
	"github.com/muster-gpu/muster/admission/validate"
)

// rate is how many requests a second BenchmarkReviews sends.
const rate = 200

// asked is a request that is sent again and again.
type asked struct {
	path string
	body []byte
}

// gpuPod is a pod of a job, of a node's GPUs.
const gpuPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"kueue.x-k8s.io/queue-name":"q"}},"spec":{"containers":[{"name":"c","image":"example.com/train:v1",
	"command":["torchrun","train.py"],"env":[{"name":"OMP_NUM_THREADS","value":"8"}],"resources":{"limits":{"nvidia.com/gpu":"8","cpu":"64","memory":"100Gi"}}}]}}`

// jobSet has four replicated jobs of a container each.
func jobSet() string {
	var jobs []string
	for i := range 4 {
		jobs = append(jobs, fmt.Sprintf(`{"name":"r%d","replicas":1,"template":{"spec":{"parallelism":4,"completions":4,"template":{"spec":{"containers":[{"name":"node","image":"example.com/train:v1",
			"env":[{"name":"OMP_NUM_THREADS","value":"8"}],"resources":{"limits":{"nvidia.com/gpu":"8","memory":"100Gi"}}}]}}}}}`, i))
	}
	return `{"apiVersion":"jobset.x-k8s.io/v1alpha2","kind":"JobSet","metadata":{"name":"j","labels":{"kueue.x-k8s.io/queue-name":"q"}},"spec":{"suspend":true,"replicatedJobs":[` + strings.Join(jobs, ",") + `]}}`
}

// mix is what the API server asks about three pods with GPUs and a JobSet: of each, its
// defaults and then the policies.
func mix(b *testing.B) []asked {
	b.Helper()
	var out []asked
	for range 3 {
		out = append(out, reviewsOf(b, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, gpuPod)...)
	}
	return append(out, reviewsOf(b, metav1.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}, jobSet())...)
}

func reviewsOf(b *testing.B, kind metav1.GroupVersionKind, object string) []asked {
	b.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "one", Operation: admissionv1.Create, Namespace: "nlp", Name: "llm", Kind: kind, Object: runtime.RawExtension{Raw: []byte(object)},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return []asked{{defaults.Path, body}, {validate.Path, body}}
}

// BenchmarkReviews sends what the API server asks about new pods with GPUs and JobSets over
// TLS on the loopback, 200 a second whether or not the ones before are answered, and says
// how long after its time each was answered; and the same for a server that answers
// nothing, which is what sending costs.
func BenchmarkReviews(b *testing.B) {
	collectLess()
	r := start(b, nil)
	if err := r.objects.Tracker().Create(runtimeDefaults, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "muster.dev/v1alpha1", "kind": "RuntimeDefaults", "metadata": map[string]any{"name": "gpu", "generation": int64(1)},
		"spec": map[string]any{
			"pod":        map[string]any{"schedulerName": "muster", "tolerations": []any{map[string]any{"key": "nvidia.com/gpu", "operator": "Exists"}}},
			"containers": map[string]any{"env": []any{map[string]any{"name": "NCCL_DEBUG", "value": "WARN"}}, "sharedMemory": map[string]any{"memoryPercent": int64(50)}},
		},
	}}, ""); err != nil {
		b.Fatal(err)
	}
	requests := mix(b)
	nothing := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer nothing.Close()
	caller := r.caller()
	for _, client := range []*http.Client{caller, nothing.Client()} {
		// As many as the API server keeps.
		client.Transport.(*http.Transport).MaxIdleConnsPerHost = 25
	}
	url := "https://" + r.listeners.webhook.Addr().String()
	for {
		if answer, err := post(caller, url, requests[0]); err != nil {
			b.Fatal(err)
		} else if strings.Contains(answer, `"patch"`) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	b.Run("sent", func(b *testing.B) { send(b, nothing.Client(), nothing.URL, requests) })
	b.Run("answered", func(b *testing.B) { send(b, caller, url, requests) })
}

func post(client *http.Client, url string, a asked) (string, error) {
	response, err := client.Post(url+a.path+"?timeout=3s", "application/json", bytes.NewReader(a.body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", response.StatusCode, body)
	}
	return string(body), err
}

// send sends the requests at the rate, one after the other, and reports the waits and the
// processor time of all that this takes.
func send(b *testing.B, client *http.Client, url string, requests []asked) {
	b.Helper()
	for _, a := range requests {
		if _, err := post(client, url, a); err != nil {
			b.Fatal(err)
		}
	}
	var mu sync.Mutex
	waits := map[string][]time.Duration{}
	unanswered := 0
	var sent sync.WaitGroup
	spent, began := cpuTime(b), time.Now()
	for i := 0; b.Loop(); i++ {
		due := began.Add(time.Duration(i) * time.Second / rate)
		time.Sleep(time.Until(due))
		sent.Go(func() {
			a := requests[i%len(requests)]
			_, err := post(client, url, a)
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				// Where the machine has too much else to do.
				unanswered++
			}
			waits[""] = append(waits[""], took)
			waits[a.path[1:]+"-"] = append(waits[a.path[1:]+"-"], took)
		})
	}
	sent.Wait()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(unanswered), "unanswered")
	b.ReportMetric(float64((cpuTime(b)-spent).Microseconds())/1000/float64(len(waits[""])), "cpu-ms/request")
	for of, all := range waits {
		slices.Sort(all)
		for name, part := range map[string]int{"p50-ms": 50, "p99-ms": 99} {
			b.ReportMetric(float64(all[len(all)*part/100].Microseconds())/1000, of+name)
		}
	}
}

// cpuTime is what the process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
