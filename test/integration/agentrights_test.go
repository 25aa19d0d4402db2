package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/cmd/gpu-agent/app"
	"github.com/muster-gpu/muster/internal/testcluster"
)

const agentAccount = "muster-gpu-agent"

// agentOwners are the kinds of objects of which the controllers, and those of their owners,
// make pods with GPUs.
var agentOwners = []string{
	"v1/Pod", "batch/v1/Job", "batch/v1/CronJob", "apps/v1/ReplicaSet", "apps/v1/Deployment", "apps/v1/StatefulSet", "apps/v1/DaemonSet",
	"jobset.x-k8s.io/v1alpha2/JobSet", "trainer.kubeflow.org/v1alpha1/TrainJob",
	"kubeflow.org/v1/PyTorchJob", "kubeflow.org/v1/TFJob", "kubeflow.org/v1/XGBoostJob", "kubeflow.org/v1/PaddleJob", "kubeflow.org/v1/JAXJob", "kubeflow.org/v2beta1/MPIJob",
	"kubeflow.org/v1/Notebook", "kubeflow.org/v1beta1/Experiment", "kubeflow.org/v1beta1/Trial",
	"ray.io/v1/RayCluster", "ray.io/v1/RayJob", "ray.io/v1/RayService", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "argoproj.io/v1alpha1/Workflow",
}

// agentTest is a cluster with the manifests of the agent, and what the API server notes of it.
type agentTest struct {
	*testcluster.Cluster
	audit string
}

func startAgentTest(t *testing.T) *agentTest {
	folder := t.TempDir()
	rules, log := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "audit.log")
	audited := fmt.Sprintf(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
{"level": "Metadata", "users": ["system:serviceaccount:muster-system:%s"]}, {"level": "None"}]}`, agentAccount)
	if err := os.WriteFile(rules, []byte(audited), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &agentTest{testcluster.StartBare(t, "--authorization-mode=RBAC", "--audit-policy-file="+rules, "--audit-log-path="+log), log}
	c.AddKueue(t)
	c.AddMuster(t)
	c.Namespace(t, "muster-system")
	c.Namespace(t, "team")
	for _, file := range []string{"rbac.yaml", "policy.yaml"} {
		for _, object := range manifest(t, "base/gpu-agent/"+file) {
			c.Create(t, object)
		}
	}
	return c
}

// as is a client's configuration for the agent's pod on that node, and for no pod if that is "".
func (c *agentTest) as(t *testing.T, node string) *rest.Config {
	t.Helper()
	api, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	spec := authenticationv1.TokenRequestSpec{}
	if node != "" {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "muster-system", Name: "agent-" + node},
			Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: agentAccount, Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		}
		c.Create(t, pod)
		spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	token, err := api.CoreV1().ServiceAccounts("muster-system").CreateToken(t.Context(), agentAccount, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.Config)
	config.BearerToken = token.Status.Token
	return config
}

// runs runs an agent with that configuration until the test ends.
func (c *agentTest) runs(t *testing.T, node string, as *rest.Config) {
	t.Helper()
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["test"] = &clientcmdapi.Cluster{Server: as.Host, TLSServerName: as.ServerName, CertificateAuthority: as.CAFile, CertificateAuthorityData: as.CAData, InsecureSkipTLSVerify: as.Insecure}
	k.AuthInfos["test"], k.Contexts["test"] = &clientcmdapi.AuthInfo{Token: as.BearerToken}, &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	k.CurrentContext = "test"
	content, err := clientcmd.Write(*k)
	if err != nil {
		t.Fatal(err)
	}
	config := configv1alpha1.DefaultGPUAgent()
	config.NodeName, config.ClientConnection.Kubeconfig = node, write("kubeconfig", string(content))
	config.Kubelet.Socket = filepath.Join(folder, "kubelet.sock")
	config.Reader.Kind, config.Reader.Script = configv1alpha1.ReaderScripted, write("script.json", `{"devices": [{"UUID": "GPU-0", "Share": {"Parts": 1, "Of": 1}}]}`)
	config.Health.BindAddress, config.Metrics.BindAddress = "127.0.0.1:0", configv1alpha1.MetricsOff
	agent, err := app.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// used are the rights that the agent has made use of, and refused what it was not let do.
// Where an object can be streamed it is, and need not be listed; older servers list.
func (c *agentTest) used(t *testing.T) (used, refused []string) {
	t.Helper()
	file, err := os.Open(c.audit)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	add := func(to *[]string, verb, resource string) {
		if right := verb + " " + resource; !slices.Contains(*to, right) {
			*to = append(*to, right)
		}
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb, UserAgent string
			ObjectRef       struct{ APIGroup, Resource, Subresource string }
			ResponseStatus  struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.UserAgent, "muster-gpu-agent/") {
			continue
		}
		resource := e.ObjectRef.Resource + "." + e.ObjectRef.APIGroup
		if e.ObjectRef.Subresource != "" {
			resource = e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource + "." + e.ObjectRef.APIGroup
		}
		switch {
		case e.ResponseStatus.Code == http.StatusForbidden:
			add(&refused, e.Verb, resource)
			continue
		case e.Verb == "patch" && e.ResponseStatus.Code == http.StatusCreated:
			add(&used, "create", resource)
		case e.Verb == "watch":
			add(&used, "list", resource)
		}
		add(&used, e.Verb, resource)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(used)
	return used, refused
}

// TestAgentsRights has an agent look at pods of all kinds of owners, with its own role.
func TestAgentsRights(t *testing.T) {
	c := startAgentTest(t)
	c.Node(t, "node-1", 8)
	c.Node(t, "node-2", 8)
	// Who is known may ask who they are.
	granted := []string{"create selfsubjectreviews.authentication.k8s.io"}
	for _, object := range manifest(t, "base/gpu-agent/rbac.yaml") {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := c.Client.Get(t.Context(), client.ObjectKey{Name: object.GetName()}, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, of := range rule.Resources {
					granted = append(granted, verb+" "+of+"."+rule.APIGroups[0])
				}
			}
		}
	}
	slices.Sort(granted)
	one := corev1.ResourceList{testcluster.GPU: resource.MustParse("1")}
	for i, owner := range agentOwners {
		at := strings.LastIndex(owner, "/")
		c.Create(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("pod-", i), OwnerReferences: []metav1.OwnerReference{
				{APIVersion: owner[:at], Kind: owner[at+1:], Name: "owner", UID: types.UID(fmt.Sprint("owner-", i)), Controller: new(true)},
			}},
			Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "x", Image: "x", Resources: corev1.ResourceRequirements{Requests: one, Limits: one}}}},
		})
	}
	as := c.as(t, "node-1")
	c.runs(t, "node-1", as)
	testcluster.Eventually(t, "the agent to make use of all its rights", func(context.Context) error {
		used, refused := c.used(t)
		if diff := cmp.Diff(granted, used); diff != "" || len(refused) > 0 {
			return fmt.Errorf("refused: %v; rights (-granted +used):\n%s", refused, diff)
		}
		return nil
	})

	t.Run("its GPUNode goes with its node", func(t *testing.T) {
		node, said := &corev1.Node{}, &musterv1alpha1.GPUNode{}
		for _, o := range []client.Object{node, said} {
			if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "node-1"}, o); err != nil {
				t.Fatal(err)
			}
		}
		want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: node.UID}}
		if diff := cmp.Diff(want, said.OwnerReferences); diff != "" {
			t.Errorf("owners (-want +got):\n%s", diff)
		}
	})
	t.Run("an agent writes the GPUNode of its node and no other", func(t *testing.T) {
		nobody := c.as(t, "")
		// A policy is enforced some time after it was made.
		testcluster.Eventually(t, "the policy to be enforced", func(ctx context.Context) error {
			return writes(ctx, c, as, "node-2", "is not on node node-2 but on node-1")
		})
		if err := writes(t.Context(), c, as, "node-1", ""); err != nil {
			t.Error(err)
		}
		if err := writes(t.Context(), c, nobody, "node-1", "is not on node node-1 but on an unknown one"); err != nil {
			t.Error(err)
		}
	})
}

// writes tries to write the GPUNode of a node, which is to be refused with that.
func writes(ctx context.Context, c *agentTest, as *rest.Config, node, refusal string) error {
	agent, err := client.New(as, client.Options{Scheme: c.Client.Scheme()})
	if err != nil {
		return err
	}
	// Of the status first: of an object that is not there nothing is checked.
	object := &musterv1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	err = agent.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"status": {"summary": {"devices": 0, "held": 0, "idle": 0, "unhealthy": 0}}}`)), client.DryRunAll)
	if apierrors.IsNotFound(err) {
		err = agent.Create(ctx, object, client.DryRunAll)
	}
	switch {
	case refusal == "" && err != nil:
		return err
	case refusal != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refusal)):
		return fmt.Errorf("writing of %s: %v, want %q", node, err, refusal)
	}
	return nil
}
