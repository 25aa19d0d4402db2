package bench

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// requests counts what was asked of the API server, by how and what, as "write
// jobs/status", "write new workloads", "dry run pods" and "read jobs".
type requests map[string]float64

// without are resources that others than the contestant ask for: the simulated
// nodes and their pods, and the API server itself.
var without = []string{"", "nodes", "leases", "tokenreviews", "subjectaccessreviews", "selfsubjectreviews"}

// requests counts what the API server has done so far, for everybody.
func (c *cluster) requests(ctx context.Context) (requests, error) {
	k, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	content, err := k.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return countRequests(content)
}

// countRequests counts the requests in the API server's metrics.
func countRequests(metrics []byte) (requests, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	out := requests{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		if name := nameOf(m); name != "" {
			out[name] += m.GetCounter().GetValue()
		}
	}
	return out, nil
}

// nameOf is what a counter of requests counts; empty if it is not of interest.
func nameOf(m *dto.Metric) string {
	label := map[string]string{}
	for _, l := range m.GetLabel() {
		label[l.GetName()] = l.GetValue()
	}
	if slices.Contains(without, label["resource"]) {
		return ""
	}
	name := label["resource"]
	if label["subresource"] != "" {
		name += "/" + label["subresource"]
	}
	switch verb := label["verb"]; {
	case verb == "GET" || verb == "LIST":
		return "read " + name
	case !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, verb):
		return ""
	case label["dry_run"] != "":
		return "dry run " + name
	case !strings.HasPrefix(label["code"], "2"):
		return "refused write " + name
	case verb == "POST":
		return "write new " + name
	}
	return "write " + name
}

// since is what was asked after before.
func (r requests) since(before requests) requests {
	out := requests{}
	for name, n := range r {
		if n > before[name] {
			out[name] = n - before[name]
		}
	}
	return out
}

// all is how many there were.
func (r requests) all() float64 {
	sum := 0.0
	for _, n := range r {
		sum += n
	}
	return sum
}

// writes is how often something was written.
func (r requests) writes() float64 {
	sum := 0.0
	for name, n := range r {
		if strings.HasPrefix(name, "write ") {
			sum += n
		}
	}
	return sum
}

func TestCountRequests(t *testing.T) {
	all, err := countRequests([]byte(`# TYPE apiserver_request_total counter
apiserver_request_total{code="201",dry_run="",resource="workloads",subresource="",verb="POST"} 3
apiserver_request_total{code="200",dry_run="",resource="workloads",subresource="status",verb="PUT"} 4
apiserver_request_total{code="200",dry_run="",resource="workloads",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="409",dry_run="",resource="workloads",subresource="status",verb="PUT"} 5
apiserver_request_total{code="201",dry_run="All",resource="pods",subresource="",verb="POST"} 7
apiserver_request_total{code="200",dry_run="",resource="workloads",subresource="",verb="GET"} 8
apiserver_request_total{code="200",dry_run="",resource="workloads",subresource="",verb="WATCH"} 9
apiserver_request_total{code="200",dry_run="",resource="leases",subresource="",verb="PUT"} 10
`))
	if err != nil {
		t.Fatal(err)
	}
	got := all.since(requests{"write new workloads": 3, "write workloads/status": 1})
	want := requests{"write workloads/status": 5, "refused write workloads/status": 5, "dry run pods": 7, "read workloads": 8}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got.writes() != 5 {
		t.Errorf("%v writes, want 5", got.writes())
	}
}
