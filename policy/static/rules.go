package static

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/workload"
)

// writers write the rules of policies of the library, by their names, with their
// parameters.
var writers = map[string]func(parameters map[string]any) (*rule, error){
	"gpu-limits":      gpuLimits,
	"katib-failures":  katibFailures,
	"node-name":       nodeName,
	"notebook-gpus":   notebookGPUs,
	"pinned-images":   pinnedImages,
	"pinned-runtimes": pinnedRuntimes,
	"queue-label":     queueLabel,
	"v1-kinds":        v1Kinds,
}

func gpuLimits(map[string]any) (*rule, error) {
	return &rule{pods: true, violations: func(v variables) string {
		return v.containers + ".map(c, " + limits("c") + ".filter(n, " + isGPU("n") + " && !" + whole(limits("c")) + ")" +
			".map(n, 'container ' + c.name + ' has a part of ' + n + ' in its limits')" +
			" + " + requests("c") + ".filter(n, " + isGPU("n") + ").map(n, " +
			"!" + whole(requests("c")) + " ? 'container ' + c.name + ' requests a part of ' + n" +
			" : !(n in " + limits("c") + ") ? 'container ' + c.name + ' requests ' + n + ' without a limit'" +
			" : quantity(string(" + requests("c") + "[n])).compareTo(quantity(string(" + limits("c") + "[n]))) != 0 ? 'container ' + c.name + ' requests another number of ' + n + ' than its limit'" +
			" : '').filter(m, m != '')).flatten()"
	}}, nil
}

func katibFailures(map[string]any) (*rule, error) {
	return &rule{violations: func(v variables) string {
		return "!has(" + v.object + ".spec.maxFailedTrialCount) ? ['set maxFailedTrialCount: without it trials go on however many have failed'] : []"
	}}, nil
}

func nodeName(parameters map[string]any) (*rule, error) {
	users, err := parameter[[]string](parameters, "exemptUsers")
	if err != nil {
		return nil, err
	}
	return &rule{pods: true, violations: func(v variables) string {
		return "request.userInfo.username in " + text(users) + " ? [] : " + v.specs + ".filter(s, s.?nodeName.orValue('') != '' && " + asksGPU("s") + ")" +
			".map(s, 'pods ask for GPUs and name the node ' + s.nodeName + ' in spec.nodeName, which passes the scheduler by: use a nodeSelector')"
	}}, nil
}

// notebookGPUs takes for the effective number what the containers and sidecars take
// together, or one init container if it takes more.
func notebookGPUs(parameters map[string]any) (*rule, error) {
	maximum, err := parameter[int64](parameters, "max")
	if err != nil {
		return nil, err
	}
	most := fmt.Sprintf("%d GPUs", maximum)
	if maximum == 1 {
		most = "1 GPU"
	}
	number := func(specs string) string {
		return "(" + specs + ".map(s, (s.?containers.orValue([]) + s.?initContainers.orValue([]).filter(i, i.?restartPolicy.orValue('') == 'Always'))" +
			".map(c, " + gpus("c") + ").sum()) + " + specs + ".map(s, s.?initContainers.orValue([]).map(c, " + gpus("c") + ")).flatten() + [0]).max()"
	}
	return &rule{pods: true, violations: func(v variables) string {
		if v.object == "oldObject" {
			return "[]" // that it was so is no reason to have more
		}
		return number("variables.specs") + " > " + fmt.Sprint(maximum) + " && " + number("variables.specs") + " > " + number("variables.specsBefore") +
			" ? [" + text("the notebook asks for more than "+most) + "] : []"
	}}, nil
}

func pinnedImages(parameters map[string]any) (*rule, error) {
	require, err := parameter[string](parameters, "require")
	if err != nil {
		return nil, err
	}
	patterns, err := parameter[[]string](parameters, "exemptImages")
	if err != nil {
		return nil, err
	}
	// What names no registry is exempt in all of them.
	const registry = "^([^/]*[.:][^/]*/)?"
	exempt := "false"
	for _, p := range patterns {
		rest := "(:[^/:@]*)?(@.*)?$"
		prefix, open := strings.CutSuffix(p, "*")
		if open {
			rest = ""
		}
		exempt += " || c.image.matches(" + text(registry+regexp.QuoteMeta(prefix)+rest) + ")"
	}
	digest := "''"
	if require == "digest" {
		digest = "'container ' + c.name + ' has the image ' + c.image + ', which has no digest (@sha256:...)'"
	}
	return &rule{pods: true, violations: func(v variables) string {
		return v.containers + ".map(c, c.?image.orValue('') == '' ? 'container ' + c.name + ' names no image'" +
			" : " + exempt + " || c.image.matches('@sha256:[0-9a-f]{64}$') ? ''" +
			" : c.image.split('@')[0].matches('(^|/)[^/:]*(:latest)?$') ? 'container ' + c.name + ' has the image ' + c.image + ', whose tag is latest: name a version, or a digest'" +
			" : " + digest + ").filter(m, m != '')"
	}}, nil
}

func pinnedRuntimes(parameters map[string]any) (*rule, error) {
	pattern, err := parameter[string](parameters, "pattern")
	if err != nil {
		return nil, err
	}
	return &rule{violations: func(v variables) string {
		name := v.object + ".spec.?runtimeRef.?name.orValue('')"
		return name + ".matches(" + text(pattern) + ") ? [] : ['the runtime ' + " + name + " + ' has no version in its name']"
	}}, nil
}

func queueLabel(map[string]any) (*rule, error) {
	return &rule{pods: true, violations: func(v variables) string {
		return v.object + ".metadata.?labels[?" + text(workload.QueueLabel) + "].orValue('') == ''" +
			" && !" + v.object + ".metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))" +
			" && " + v.specs + ".exists(s, " + asksGPU("s") + ")" +
			" ? [request.kind.kind + ' asks for GPUs and names no queue: set the label " + workload.QueueLabel + "'] : []"
	}}, nil
}

func v1Kinds(map[string]any) (*rule, error) {
	return &rule{violations: func(variables) string {
		return "[request.kind.kind + ' is a kind of Kubeflow\\'s version 1: a TrainJob does the same']"
	}}, nil
}

func limits(container string) string { return container + ".?resources.?limits.orValue({})" }

func requests(container string) string { return container + ".?resources.?requests.orValue({})" }

// isGPU says that a resource of this name is a GPU, as api/gpu does.
func isGPU(name string) string {
	var exact, tests []string
	for _, known := range gpu.Names() {
		if prefix, open := strings.CutSuffix(known, "*"); open {
			tests = append(tests, name+".startsWith("+text(prefix)+")")
			continue
		}
		exact = append(exact, known)
	}
	return "(" + strings.Join(append([]string{name + " in " + text(exact)}, tests...), " || ") + ")"
}

// gpus is how many GPUs a container takes, a part of one for one.
func gpus(container string) string {
	count := func(list string) string { return ".map(n, int(" + number(list) + " + 0.9999))" }
	return "(" + requests(container) + ".filter(n, " + isGPU("n") + ")" + count(requests(container)) +
		" + " + limits(container) + ".filter(n, " + isGPU("n") + " && !(n in " + requests(container) + "))" + count(limits(container)) + ").sum()"
}

// number is how much there is of the resource n in a list of amounts, which have their own
// suffixes, and of which 2000m is a whole one.
func number(list string) string {
	return "quantity(string(" + list + "[n])).asApproximateFloat()"
}

func whole(list string) string {
	return "(double(int(" + number(list) + ")) == " + number(list) + ")"
}

// asksGPU says that a container of a pod takes a GPU.
func asksGPU(spec string) string {
	return "(" + spec + ".?containers.orValue([]) + " + spec + ".?initContainers.orValue([])).exists(c, [" + limits("c") + ", " + requests("c") + "]" +
		".exists(list, list.exists(n, " + isGPU("n") + " && quantity(string(list[n])).isGreaterThan(quantity('0')))))"
}

// text is the literal of a string, or of a list of them. CEL reads those of JSON.
func text(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	// Strings and lists of them have a JSON form.
	_ = e.Encode(value)
	return strings.TrimSpace(b.String())
}

// parameter is one of the parameters, which has a type.
func parameter[T any](parameters map[string]any, name string) (out T, err error) {
	body, err := json.Marshal(parameters[name])
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	if err != nil {
		return out, fmt.Errorf("reading parameter %s: %w", name, err)
	}
	return out, nil
}
