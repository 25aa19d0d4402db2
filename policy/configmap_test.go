package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAConfigMapOfKubeMgmtIsAPolicy(t *testing.T) {
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "images", Labels: map[string]string{PolicyLabel: "rego"}},
		Data: map[string]string{
			"b.rego": "package lib\n\nbad = true { input.request.object.spec.bad }\n",
			"a.rego": "package kubernetes.admission\n\nimport data.lib\n\ndeny[msg] { lib.bad; msg := \"no\" }\n",
		},
	}
	p, ok := FromConfigMap(m)
	if !ok {
		t.Fatal("it is no policy")
	}
	d := review(t, engine(p), create(t, object(nil, map[string]any{"bad": true})))
	if diff := cmp.Diff("[configmap/images] no", d.Message()); diff != "" {
		t.Error(diff)
	}
	for name, change := range map[string]func(){
		"another label": func() { m.Labels[PolicyLabel] = "data" },
		"no files":      func() { m.Labels[PolicyLabel], m.Data = PolicyLabelRego, nil },
	} {
		change()
		if _, ok := FromConfigMap(m); ok {
			t.Errorf("%s: it is a policy", name)
		}
	}
}
