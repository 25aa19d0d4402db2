package scheduling

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func TestWhichFailuresMayLieInTheNode(t *testing.T) {
	rejectedBy := func(plugin string) *fwk.Status {
		return fwk.NewStatus(fwk.Unschedulable).WithError(&framework.FitError{
			Diagnosis: framework.Diagnosis{UnschedulablePlugins: sets.New(plugin), NodeToStatus: framework.NewDefaultNodeToStatus()},
		})
	}
	binding := func(err error) *fwk.Status { return fwk.AsStatus(fmt.Errorf("running Bind plugin: %w", err)) }
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		status *fwk.Status
		node   string
		want   bool
	}{
		"Filter refused, and the slot is planned anew already": {rejectedBy("NodeAffinity"), "", false},
		"Reserve refused": {rejectedBy("VolumeBinding"), "node-0", true},
		"we sent it back ourselves, or it waited in vain": {rejectedBy(PluginName), "node-0", false},
		"PreBind failed":                           {binding(errors.New("the volume is not there")), "node-0", true},
		"the API refused the binding":              {binding(apierrors.NewForbidden(pods, "p", errors.New("webhook"))), "node-0", true},
		"the API did not answer":                   {binding(&url.Error{Op: "Post", Err: errors.New("refused")}), "node-0", false},
		"the API had too much to do":               {binding(apierrors.NewTooManyRequests("later", 1)), "node-0", false},
		"the API was broken":                       {binding(apierrors.NewInternalError(errors.New("etcd"))), "node-0", false},
		"a plugin failed before a node was chosen": {fwk.AsStatus(errors.New("bug")), "", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := failedThere(&corev1.Pod{Spec: corev1.PodSpec{NodeName: tc.node}}, tc.status); got != tc.want {
				t.Errorf("it may lie in the node: %v, want %v", got, tc.want)
			}
		})
	}
}
