package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// server is as much of an API server as an agent sees, without a socket: a client's
// transport. Time that a test makes up passes for it too.
type server struct {
	mu   sync.Mutex
	pods map[string]*corev1.Pod
	// queueOf is the ClusterQueue of the Workloads of a namespace.
	queueOf func(namespace string) string
	// away: nobody answers. changed is closed, and made anew, with each change of it.
	away    bool
	changed chan struct{}
	// watches are told of changes of pods.
	watches map[chan event]bool
	version int
	// made says that the GPUNode is there; asked counts requests as "GET workloads".
	made  bool
	asked map[string]int
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

func newServer(queueOf func(string) string) *server {
	return &server{pods: map[string]*corev1.Pod{}, queueOf: queueOf, changed: make(chan struct{}), watches: map[chan event]bool{}, asked: map[string]int{}}
}

// set has a pod be there.
func (s *server) set(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod.APIVersion, pod.Kind, pod.ResourceVersion = "v1", "Pod", s.next()
	s.pods[pod.Namespace+"/"+pod.Name] = pod
	s.tell(event{"ADDED", pod})
}

// clear deletes all pods.
func (s *server) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, pod := range s.pods {
		delete(s.pods, key)
		gone := pod.DeepCopy()
		gone.ResourceVersion = s.next()
		s.tell(event{"DELETED", gone})
	}
}

func (s *server) next() string { s.version++; return strconv.Itoa(s.version) }

func (s *server) tell(e event) {
	for w := range s.watches {
		w <- e
	}
}

// goAway has nobody answer, or answer again.
func (s *server) goAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
	close(s.changed)
	s.changed = make(chan struct{})
}

// requests is how often that was asked for.
func (s *server) requests(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errors.New("connection refused")
	}
	at := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, name, namespace := "", at[len(at)-1], ""
	if i := slices.Index(at, "namespaces"); i >= 0 && len(at) == i+4 {
		namespace, resource = at[i+1], at[i+2]
	}
	switch r.URL.Path {
	case "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceslices":
		resource = name
	case "/apis/muster.dev/v1alpha1/gpunodes/node-1", "/apis/muster.dev/v1alpha1/gpunodes/node-1/status":
		resource = strings.Join(at[3:], " ")
	}
	s.asked[r.Method+" "+resource]++
	switch query := r.URL.Query(); {
	case query.Get("watch") != "":
		return s.watch(r, resource)
	case resource == "pods":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
		for _, pod := range s.pods {
			list.Items = append(list.Items, *pod)
		}
		return answer(http.StatusOK, list)
	case resource == "resourceslices":
		return answer(http.StatusOK, map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}})
	case resource == "jobs":
		return answer(http.StatusOK, metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: jobUID(name)},
		})
	case resource == "workloads":
		return answer(http.StatusOK, map[string]any{
			"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": map[string]any{"namespace": namespace, "name": name},
			"status": map[string]any{"admission": map[string]any{"clusterQueue": s.queueOf(namespace)}},
		})
	case resource == "gpunodes node-1 status" && s.made, resource == "gpunodes node-1":
		s.made = true
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		return answer(http.StatusOK, json.RawMessage(body))
	}
	return answer(http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
}

func answer(code int, object any) (*http.Response, error) {
	body, err := json.Marshal(object)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, err
}

// watch tells what there is and what changes, until the time is over that the client has
// asked for, the client leaves, or the server goes away.
func (s *server) watch(r *http.Request, resource string) (*http.Response, error) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		return nil, err
	}
	events := make(chan event, 1000)
	apiVersion, kind := "resource.k8s.io/v1", "ResourceSlice"
	if resource == "pods" {
		apiVersion, kind = "v1", "Pod"
		for _, key := range slices.Sorted(maps.Keys(s.pods)) {
			events <- event{"ADDED", s.pods[key]}
		}
		s.watches[events] = true
	}
	events <- event{"BOOKMARK", map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{
		"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
	}}}
	body, to := io.Pipe()
	changed := s.changed
	go func() {
		defer to.Close()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watches, events)
		}()
		over := time.NewTimer(time.Duration(seconds) * time.Second)
		defer over.Stop()
		encoder := json.NewEncoder(to)
		for {
			select {
			case e := <-events:
				if encoder.Encode(e) != nil {
					return
				}
			case <-over.C:
				return
			case <-changed:
				return
			case <-r.Context().Done():
				return
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1}, nil
}
