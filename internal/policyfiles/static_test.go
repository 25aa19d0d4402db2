package policyfiles

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/manifests"
)

func TestTheStaticPoliciesOfTheManifestsAreThoseOfTheLibrary(t *testing.T) {
	want, err := manifests.FS.ReadFile("static/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := Static(&got, ""); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(want), "\n")
	if diff := cmp.Diff(body, got.String()); diff != "" {
		t.Errorf("run make generate (-manifest +library):\n%s", diff)
	}
}

func TestStaticPoliciesAreAsTheConfigurationHasThem(t *testing.T) {
	const head = "apiVersion: config.muster.dev/v1alpha1\nkind: WebhookConfiguration\n"
	tests := []struct {
		name, config string
		// lines are among what is written, absent are not.
		lines, absent []string
	}{
		{name: "the defaults", lines: []string{"  name: muster-gpu-limits", "  - Deny", "  - Warn"}, absent: []string{"  name: muster-v1-kinds", "  name: muster-katib-reach", "status:"}},
		{
			name: "another level, parameter and exemption", absent: []string{"  name: muster-gpu-limits"},
			config: `policies: {library: {gpu-limits: {level: "off"}, v1-kinds: {level: warn}, pinned-runtimes: {level: deny, parameters: {pattern: "-v[0-9]+$"}, exempt: {users: [ann]}}}}`,
			lines:  []string{"  name: muster-v1-kinds", `matches("-v[0-9]+$")`, `!(request.userInfo.username == "ann")`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := ""
			if tt.config != "" {
				file = filepath.Join(folder(t, map[string]string{"webhook.yaml": head + tt.config}), "webhook.yaml")
			}
			var out bytes.Buffer
			if err := Static(&out, file); err != nil {
				t.Fatal(err)
			}
			for _, line := range tt.lines {
				if !strings.Contains(out.String(), line) {
					t.Errorf("it lacks %q", line)
				}
			}
			for _, line := range tt.absent {
				if strings.Contains(out.String(), line) {
					t.Errorf("it has %q", line)
				}
			}
		})
	}
	wrong := filepath.Join(folder(t, map[string]string{"webhook.yaml": head + "policies: {library: {notebook-gpus: {parameters: {max: many}}}}"}), "webhook.yaml")
	if err := Static(&bytes.Buffer{}, wrong); err == nil || !strings.Contains(err.Error(), "policy muster-notebook-gpus: reading parameter max") {
		t.Errorf("a parameter of another type: %v", err)
	}
}
