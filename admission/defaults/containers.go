package defaults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/util/parsers"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// container is a container or an init container of the pod, and where it is.
type container struct {
	at path
	*corev1.Container
}

func (c *container) among(others []*container) bool {
	return slices.ContainsFunc(others, func(o *container) bool { return o.Container == c.Container })
}

// named says that the container is one of the names, or that there are none.
func (c *container) named(names []string) bool {
	return len(names) == 0 || slices.Contains(names, c.Name)
}

// all are the init containers and the containers, in this order.
func (s *stamper) all() []*container {
	var out []*container
	for i := range s.pod.Spec.InitContainers {
		out = append(out, &container{s.spec("initContainers").at(i), &s.pod.Spec.InitContainers[i]})
	}
	for i := range s.pod.Spec.Containers {
		out = append(out, &container{s.spec("containers").at(i), &s.pod.Spec.Containers[i]})
	}
	return out
}

// targets are the containers of these names, or those that ask for devices.
func (s *stamper) targets(names []string) []*container {
	return slices.DeleteFunc(s.all(), func(c *container) bool {
		if len(names) > 0 {
			return !slices.Contains(names, c.Name)
		}
		return !asksDevices(c.Container)
	})
}

// asksDevices says that a container asks for GPUs, or uses a resource claim: of what
// is claimed the pod does not say what it is.
func asksDevices(c *corev1.Container) bool {
	if len(c.Resources.Claims) > 0 {
		return true
	}
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name, quantity := range list {
			if quantity.Sign() > 0 && (gpu.Is(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)) {
				return true
			}
		}
	}
	return false
}

// gpus is how many GPUs a container asks for, whole ones and slices alike.
func gpus(c *corev1.Container) int64 {
	var n int64
	for name, quantity := range c.Resources.Limits {
		if gpu.Is(name) {
			n += quantity.Value()
		}
	}
	return n
}

func (s *stamper) container(c *container) {
	s.env(c)
	s.capabilities(c)
	s.resources(c)
	s.pullPolicy(c)
}

// env adds the variables that the container has from nowhere. A variable that it
// may have from a ConfigMap or a Secret is left out: one that is written out beats
// those, so it would silently replace the author's.
func (s *stamper) env(c *container) {
	var missing []any
	for _, e := range s.by.Spec.Containers.Env {
		field := fmt.Sprintf("env %s of container %s", e.Name, c.Name)
		if i := slices.IndexFunc(c.Env, func(have corev1.EnvVar) bool { return have.Name == e.Name }); i >= 0 {
			s.decide(field, e.Value, valueOf(&c.Env[i]), authored)
			continue
		}
		if source := mayCome(c.EnvFrom, e.Name); source != "" {
			s.leave(field, e.Value, "it may come from "+source)
			s.refuse("%s must be %q, and may come from %s; write it out", field, e.Value, source)
			continue
		}
		if s.decide(field, e.Value, "", absent) {
			missing = append(missing, variable(e.Name, e.Value))
			c.Env = append(c.Env, corev1.EnvVar{Name: e.Name, Value: e.Value})
		}
	}
	s.doc.extend(c.at.to("env"), missing...)
}

// variable is one as the document has it.
func variable(name, value string) map[string]any {
	if value == "" {
		return map[string]any{"name": name}
	}
	return map[string]any{"name": name, "value": value}
}

// valueOf is the value of a variable, or what it is taken from.
func valueOf(e *corev1.EnvVar) string {
	from := e.ValueFrom
	switch {
	case from == nil:
		return e.Value
	case from.FieldRef != nil:
		return "from field " + from.FieldRef.FieldPath
	case from.ConfigMapKeyRef != nil:
		return "from ConfigMap " + from.ConfigMapKeyRef.Name
	case from.SecretKeyRef != nil:
		return "from Secret " + from.SecretKeyRef.Name
	}
	return "from elsewhere"
}

// mayCome is the first source that may hold the variable, or empty.
func mayCome(sources []corev1.EnvFromSource, name string) string {
	for _, from := range sources {
		if rest, found := strings.CutPrefix(name, from.Prefix); !found || rest == "" {
			continue
		}
		switch {
		case from.ConfigMapRef != nil:
			return "ConfigMap " + from.ConfigMapRef.Name
		case from.SecretRef != nil:
			return "Secret " + from.SecretRef.Name
		}
	}
	return ""
}

func (s *stamper) capabilities(c *container) {
	const added = "added"
	var missing []any
	context := c.SecurityContext
	if context == nil {
		context = &corev1.SecurityContext{}
	}
	if context.Capabilities == nil {
		context.Capabilities = &corev1.Capabilities{}
	}
	has := func(list []corev1.Capability, name string) bool {
		return slices.Contains(list, corev1.Capability(name)) || slices.Contains(list, "ALL")
	}
	for _, name := range s.by.Spec.Containers.Capabilities {
		field := fmt.Sprintf("capability %s of container %s", name, c.Name)
		have := ""
		switch {
		case has(context.Capabilities.Add, name), context.Privileged != nil && *context.Privileged:
			have = added
		case has(context.Capabilities.Drop, name):
			have = "dropped"
		case s.around.Baseline:
			s.leave(field, added, "the Pod Security level of the namespace does not allow it")
			continue
		}
		if s.decide(field, added, have, stateOf(have != "", false)) {
			missing = append(missing, name)
			context.Capabilities.Add = append(context.Capabilities.Add, corev1.Capability(name))
		}
	}
	if len(missing) > 0 {
		c.SecurityContext = context
		s.doc.extend(c.at.to("securityContext", "capabilities", "add"), missing...)
	}
}

func (s *stamper) resources(c *container) {
	for _, r := range s.by.Spec.Containers.Resources {
		field, name := fmt.Sprintf("resource %s of container %s", r.Name, c.Name), corev1.ResourceName(r.Name)
		want := *resource.NewQuantity(devices(r, c.Container), resource.DecimalSI)
		if want.IsZero() {
			continue
		}
		have, found := c.Resources.Limits[name]
		if !found {
			have, found = c.Resources.Requests[name]
		}
		said := ""
		if found {
			said = have.String()
		}
		if s.decide(field, want.String(), said, stateOf(found, false)) {
			if c.Resources.Limits == nil {
				c.Resources.Limits = corev1.ResourceList{}
			}
			c.Resources.Limits[name] = want
			s.doc.set(c.at.to("resources", "limits", r.Name), want.String())
		}
	}
}

func devices(r v1alpha1.ResourceDefault, c *corev1.Container) int64 {
	if r.PerGPU {
		return r.Count * gpus(c)
	}
	return r.Count
}

func (s *stamper) pullPolicy(c *container) {
	want := s.by.Spec.Containers.ImagePullPolicy
	if want == "" {
		return
	}
	is := stateOf(c.ImagePullPolicy != "", s.around.Defaulted && c.ImagePullPolicy == defaultPolicy(c.Image))
	if s.decide("imagePullPolicy of container "+c.Name, string(want), string(c.ImagePullPolicy), is) {
		c.ImagePullPolicy = want
		s.doc.set(c.at.to("imagePullPolicy"), string(want))
	}
}

// defaultPolicy is the pull policy that the API server gives an image.
func defaultPolicy(image string) corev1.PullPolicy {
	if _, tag, _, _ := parsers.ParseImageName(image); tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// seconds is a grace period as text.
func seconds(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}
