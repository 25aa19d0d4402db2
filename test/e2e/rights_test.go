package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// others are the rights by roles that are not Muster's: that of the secure port's
// configuration, to which the manifests bind the scheduler, and that of everybody.
var others = map[string]sets.Set[string]{
	"muster-scheduler": sets.New("get configmaps", "list configmaps", "watch configmaps", "create selfsubjectreviews.authentication.k8s.io"),
	"muster-gpu-agent": sets.New("create selfsubjectreviews.authentication.k8s.io"),
}

// allowedAll compares what Muster's programs have asked of the API server since the sandbox
// began with what the manifests allow them. It logs what they did not need.
func allowedAll(t *testing.T, c *cluster) {
	used, refused := asked(t, c.AuditLog())
	for who := range refused {
		t.Errorf("%s was refused: %s", who, strings.Join(sets.List(refused[who]), ", "))
	}
	granted := grantedBy(t, decode(t, []byte(c.run(t, "kubectl kustomize manifests/overlays/default"))))
	// That role is for people.
	delete(granted, "muster-viewer")
	if len(granted) != 3 || len(used) != 3 {
		t.Errorf("rights are granted to %v and used by %v", slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(used)))
	}
	for who, rights := range granted {
		if more := used[who].Difference(rights).Difference(others[who]); more.Len() > 0 {
			t.Errorf("%s does what its roles do not say: %s", who, strings.Join(sets.List(more), ", "))
		}
		t.Logf("%s used %d of %d rights, and not: %s", who, rights.Intersection(used[who]).Len(), rights.Len(),
			strings.Join(sets.List(rights.Difference(used[who])), ", "))
	}
}

func right(verb, group, resource, subresource string) string {
	if group != "" {
		resource += "." + group
	}
	if subresource != "" {
		resource += "/" + subresource
	}
	return verb + " " + resource
}

// asked are the rights that were used and those that were refused, by service account.
func asked(t *testing.T, file string) (used, refused map[string]sets.Set[string]) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	used, refused = map[string]sets.Set[string]{}, map[string]sets.Set[string]{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, len(content)+1)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		o := event.ObjectRef
		if o == nil {
			continue
		}
		who := event.User.Username[strings.LastIndex(event.User.Username, ":")+1:]
		into := used
		if event.Annotations["authorization.k8s.io/decision"] != "allow" {
			into = refused
		}
		if into[who] == nil {
			into[who] = sets.New[string]()
		}
		into[who].Insert(right(event.Verb, o.APIGroup, o.Resource, o.Subresource))
	}
	return used, refused
}

// grantedBy are the rights of roles by service account, which bear the same name.
func grantedBy(t *testing.T, objects []*unstructured.Unstructured) map[string]sets.Set[string] {
	t.Helper()
	granted := map[string]sets.Set[string]{}
	for _, object := range objects {
		if kind := object.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		if granted[role.Name] == nil {
			granted[role.Name] = sets.New[string]()
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						resource, subresource, _ := strings.Cut(resource, "/")
						granted[role.Name].Insert(right(verb, group, resource, subresource))
					}
				}
			}
		}
	}
	return granted
}
