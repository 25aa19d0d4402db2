package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// run gives a shell's output of a script, in which kubectl is the cluster's
// administrator's. It runs at the root of the repository, and ends with the first
// command that fails.
func (c *cluster) run(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	command.Dir = root
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+os.Getenv("PATH")+":"+testsandbox.BinDir(t))
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%s%v", script, out, err)
	}
	return string(out)
}

// TestInstalled is about what only an installation has, and about putting it there, changing
// it and taking it away by the commands of docs/install.md. What must always hold is not
// watched: it does not, where the queues are deleted under running jobs.
func TestInstalled(t *testing.T) {
	s := testsandbox.Up(t, "e2e-installed", sandbox.Options{Audit: true})
	c := &cluster{Cluster: s, client: s.Client}
	tm := team{cluster: c, namespace: "installed"}
	tm.make(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace}})

	t.Run("the API server takes the manifests of the pods, and restricts those that it can", func(t *testing.T) { taken(t, c) })
	tm.queueUp(t, "q", 32)
	tm.create(t, job{name: "llm", queue: "q", nodes: 2, gpus: 8})
	before := uids(tm.runs(t, "llm", 2))
	alone := tm.alone("alone", 4, nil, nil)
	tm.make(t, alone)
	tm.started(t, alone)
	tm.create(t, job{name: "later", queue: "q", nodes: 4, gpus: 8})
	undisturbed := func(t *testing.T) {
		t.Helper()
		tm.waits(t, "later", "WaitingForQuota", "needs 32 GPUs in queue q, 16 of 32 free")
		if got := uids(tm.runs(t, "llm", 2)); !got.Equal(before) {
			t.Errorf("the running job's pods were replaced: %v, before %v", got, before)
		}
		tm.started(t, alone)
	}
	undisturbed(t)
	t.Run("schedulers follow each other, and nobody notices", func(t *testing.T) { followed(t, tm, undisturbed) })
	t.Run("the programs are allowed what they do, by their own roles", func(t *testing.T) { allowedAll(t, c) })
	t.Run("Muster is taken away, put back and changed while a job runs and one waits", func(t *testing.T) { putBack(t, tm, undisturbed) })
	t.Run("what runs goes on when all is taken away, and pods and jobs are made as without it", func(t *testing.T) { takenAway(t, tm) })
}

// commands are the blocks of commands of a section of docs/install.md.
func commands(t *testing.T, section string, blocks int) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## "+section+"\n")
	after, _, _ = strings.Cut(after, "\n## ")
	var all []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(after, -1) {
		all = append(all, block[1])
	}
	if len(all) != blocks {
		t.Fatalf("docs/install.md has %d blocks of commands about %q", len(all), section)
	}
	return all
}

// taken sends what the sandbox leaves out, because it runs programs and no pods.
func taken(t *testing.T, c *cluster) {
	strict := client.WithFieldValidation(c.client, metav1.FieldValidationStrict)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "restricted", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := c.client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, object := range decode(t, []byte(c.run(t, "kubectl kustomize manifests/overlays/ha"))) {
		kind := object.GetKind()
		switch kind {
		case "Deployment", "DaemonSet", "PodDisruptionBudget", "Service":
		default:
			continue
		}
		kinds[kind]++
		if err := strict.Create(t.Context(), object, client.DryRunAll); err != nil {
			t.Errorf("%s %s: %v", kind, object.GetName(), err)
		}
		switch kind {
		case "Deployment":
			eventually(t, "the pod of "+object.GetName()+" to be taken", func(ctx context.Context) error {
				return c.client.Create(ctx, podOf(t, object, namespace.Name), client.DryRunAll)
			})
		case "DaemonSet":
			eventually(t, "the pod of "+object.GetName()+" to be called privileged", func(ctx context.Context) error {
				err := c.client.Create(ctx, podOf(t, object, namespace.Name), client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
					return fmt.Errorf("it is answered: %v", err)
				}
				return nil
			})
		}
	}
	if diff := cmp.Diff(map[string]int{"Deployment": 2, "DaemonSet": 1, "PodDisruptionBudget": 2, "Service": 1}, kinds); diff != "" {
		t.Errorf("what is sent (-want +got):\n%s", diff)
	}
}

// podOf is a pod of the template of what makes pods. Its namespace has no service account
// and no RuntimeClass of Muster's.
func podOf(t *testing.T, maker *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	t.Helper()
	template, _, err := unstructured.NestedMap(maker.Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	template["apiVersion"], template["kind"] = "v1", "Pod"
	pod := &unstructured.Unstructured{Object: template}
	pod.SetNamespace(namespace)
	pod.SetName(maker.GetName())
	if err := unstructured.SetNestedField(pod.Object, "default", "spec", "serviceAccountName"); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(pod.Object, "spec", "runtimeClassName")
	return pod
}

// followed runs two replicas of the scheduler in the place of the sandbox's, which stands
// alone and needs no Lease.
func followed(t *testing.T, tm team, undisturbed func(*testing.T)) {
	tm.kill(t, "muster-scheduler")
	first, second := tm.standby(t), tm.standby(t)
	start := func(r *replica) string {
		r.run(t, tm.cluster, "scheduler")
		t.Cleanup(func() { r.stop(t, unix.SIGKILL) })
		eventually(t, "the scheduler to be ready", func(ctx context.Context) error { return answers(ctx, "https://"+r.health+"/readyz") })
		return tm.leader(t, "")
	}
	leader := start(first)
	if standing := start(second); standing != leader {
		t.Errorf("%s leads, though %s does", standing, leader)
	}
	undisturbed(t)
	first.stop(t, unix.SIGTERM)
	tm.leader(t, leader)
	undisturbed(t)
	second.stop(t, unix.SIGTERM)
	tm.restart(t, "muster-scheduler")
	undisturbed(t)
}

// standby is a scheduler that is configured as the sandbox's, has ports of its own, and
// decides while it has the Lease.
func (tm team) standby(t *testing.T) *replica {
	t.Helper()
	var serving netip.AddrPort
	r := tm.configured(t, "muster-scheduler", func(config map[string]any) {
		serving = freeAddress(t)
		config["leaderElection"] = map[string]any{"leaderElect": true}
		secure := config["secureServing"].(map[string]any)
		secure["port"], secure["questionsPort"] = serving.Port(), freeAddress(t).Port()
	})
	r.health = serving.String()
	return r
}

// answers returns an error unless the answer is 200 OK. Whoever serves has made its own
// certificate.
func answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	insecure := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := insecure.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// leader waits until another one than that has the schedulers' Lease.
func (tm team) leader(t *testing.T, not string) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	eventually(t, "a scheduler to lead", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKey{Namespace: "muster-system", Name: "muster-scheduler"}, lease); err != nil {
			return err
		}
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder == "" || holder == not {
			return fmt.Errorf("%q does", holder)
		}
		return nil
	})
	return *lease.Spec.HolderIdentity
}

// putBack is about programs that are taken away and come back to queues that have stayed.
// The webhook does not come back: its Service leads nowhere here, and the team does without.
func putBack(t *testing.T, tm team, undisturbed func(*testing.T)) {
	uninstall := commands(t, "Uninstall", 3)
	for _, component := range []string{"muster-webhook", "muster-scheduler"} {
		tm.kill(t, component)
	}
	t.Log(tm.run(t, uninstall[0]))
	if waiting := tm.run(t, uninstall[1]); !regexp.MustCompile(`TrainJob +installed +later +true`).MatchString(waiting) {
		t.Errorf("what waits is said to be:\n%s", waiting)
	}
	tm.convertByService(t)
	tm.run(t, "kubectl label namespace "+tm.namespace+" muster.dev/webhook=ignore")

	for _, block := range commands(t, "Install", 2) {
		t.Log(tm.run(t, unplaced(block)))
	}
	// Its service account is another one now.
	tm.identify(t, "muster-scheduler")
	tm.restart(t, "muster-scheduler")
	tm.usage(t, "q", 16, 1, 1)
	undisturbed(t)

	// The Deployments' pods are placed like any others, on simulated nodes.
	t.Log(tm.run(t, commands(t, "Upgrade", 1)[0]))
	undisturbed(t)
	tm.end(t, "llm")
	tm.finishes(t, "llm")
	if err := tm.client.Delete(t.Context(), tm.alone("alone", 4, nil, nil), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	tm.runs(t, "later", 4)
}

// unplaced leaves out the commands that wait for replicas, while nobody places their pods.
func unplaced(script string) string {
	return regexp.MustCompile("(?m)^kubectl rollout.*$").ReplaceAllString(script, "")
}

// convertByService has definitions name the webhook as the manifests do, and not as the
// sandbox does, by a local port: kubectl would leave both.
func (tm team) convertByService(t *testing.T) {
	t.Helper()
	for _, name := range []string{"clusterqueues", "cohorts", "localqueues", "workloads"} {
		patch := `[{"op":"replace","path":"/spec/conversion/webhook/clientConfig","value":{"service":{"namespace":"muster-system","name":"muster-webhook","path":"/convert"}}}]`
		tm.run(t, "kubectl patch crd "+name+".kueue.x-k8s.io --type=json -p '"+patch+"'")
	}
}

// identify gives a component a token of its service account as it is now.
func (tm team) identify(t *testing.T, component string) {
	t.Helper()
	path := filepath.Join(tm.Dir(), "config", component+".kubeconfig")
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	token := tm.run(t, "kubectl create token -n muster-system "+component+" --duration=1h")
	for _, user := range config.AuthInfos {
		user.Token = strings.TrimSpace(token)
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

func takenAway(t *testing.T, tm team) {
	before := uids(tm.runs(t, "later", 4))
	tm.create(t, job{name: "last", queue: "q", nodes: 1, gpus: 8})
	tm.waits(t, "last", "WaitingForQuota", "needs 8 GPUs in queue q, 0 of 32 free")
	uninstall := commands(t, "Uninstall", 3)
	tm.kill(t, "muster-scheduler")
	t.Log(tm.run(t, uninstall[0]))
	pod := tm.alone("after", 1, map[string]string{"kueue.x-k8s.io/queue-name": "q"}, nil)
	tm.make(t, pod)
	if len(pod.Spec.Containers[0].Env) > 0 || pod.Spec.SchedulerName != corev1.DefaultSchedulerName {
		t.Errorf("who changed the pod? %+v", pod.Spec)
	}
	t.Log(tm.run(t, uninstall[2]))

	tm.create(t, job{name: "fresh", nodes: 2, gpus: 1})
	eventually(t, "the pods of a new job to be made", func(ctx context.Context) error {
		if pods, err := tm.pods(ctx, "fresh"); err != nil || len(pods) != 2 {
			return fmt.Errorf("%d are there (%v)", len(pods), err)
		}
		return nil
	})
	if got := uids(tm.runs(t, "later", 4)); !got.Equal(before) {
		t.Errorf("the running job's pods were replaced: %v, before %v", got, before)
	}
	if suspended, err := tm.suspended(t.Context(), "last"); err != nil || !suspended {
		t.Errorf("the waiting job is suspended: %v (%v)", suspended, err)
	}
	for line := range strings.Lines(tm.run(t, "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies,clusterroles,clusterrolebindings,namespaces,crds -o name; kubectl get rolebindings -n kube-system -o name")) {
		// The nodes of the sandbox have a role of their own.
		if (strings.Contains(line, "muster") || strings.Contains(line, "kueue")) && !strings.Contains(line, "muster-sandbox") {
			t.Errorf("this is left: %s", line)
		}
	}
	// Other programs than Muster's end jobs now.
	tm.removeAll(t)
}
