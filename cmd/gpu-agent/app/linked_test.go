package app

import (
	"os/exec"
	"strings"
	"testing"
)

// The agent runs on each node, and most of its memory is what is linked into it: the types
// of all of Kubernetes' API groups would double that.
func TestTheAgentLinksNoTypesThatItDoesNotRead(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/muster-gpu/muster/cmd/gpu-agent").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		switch {
		case dep == "k8s.io/api/core/v1", dep == "k8s.io/api/resource/v1":
		case strings.HasPrefix(dep, "k8s.io/api/"), strings.HasPrefix(dep, "sigs.k8s.io/controller-runtime/"),
			dep == "k8s.io/client-go/kubernetes/scheme", dep == "k8s.io/client-go/discovery", dep == "github.com/muster-gpu/muster/workload":
			t.Errorf("%s is linked", dep)
		}
	}
}
