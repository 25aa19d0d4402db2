package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	apiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
)

// Cluster is a running API server.
type Cluster struct {
	Config *rest.Config
	// Client reads and writes the API directly.
	Client client.Client
	// Kubeconfig is the path of a file for programs that want one.
	Kubeconfig string
}

// Start runs etcd and kube-apiserver, with all CRDs, until the test ends.
func Start(t testing.TB) *Cluster {
	t.Helper()
	cluster := StartBare(t)
	cluster.AddKueue(t)
	cluster.AddMuster(t)
	cluster.AddJobSet(t)
	trainer := filepath.Join(root(t), "tools", "trainer")
	cluster.applyCRDs(t, filepath.Join(moduleDir(t, trainer, "github.com/kubeflow/trainer/v2"), "manifests", "base", "crds"))
	cluster.applyCRDs(t, filepath.Join(moduleDir(t, trainer, "sigs.k8s.io/scheduler-plugins"), "config", "crd", "bases"))
	return cluster
}

// AddKueue applies the CRDs of Kueue's API, as Muster's manifests have them.
func (c *Cluster) AddKueue(t testing.TB) {
	t.Helper()
	c.applyCRDs(t, filepath.Join(root(t), "manifests", "crds", "kueue"))
}

// AddMuster applies the CRDs of Muster's own API.
func (c *Cluster) AddMuster(t testing.TB) {
	t.Helper()
	c.applyCRDs(t, filepath.Join(root(t), "manifests", "crds", "muster"))
}

// AddJobSet applies the CRD of JobSets.
func (c *Cluster) AddJobSet(t testing.TB) {
	t.Helper()
	c.applyCRDs(t, filepath.Join(moduleDir(t, ".", "sigs.k8s.io/jobset"), "config", "components", "crd", "bases"))
}

// StartBare runs etcd and kube-apiserver, without any CRD and with more flags, until
// the test ends. Feature gates that are among them are those of the whole process:
// a scheduler that is to have its own runs in another.
func StartBare(t testing.TB, flags ...string) *Cluster {
	t.Helper()
	etcd := testserver.RunEtcd(t, nil)
	storage := storagebackend.NewDefaultConfig("/registry", nil)
	storage.Transport.ServerList = etcd.Endpoints()
	server := apiservertesting.StartTestServerOrDie(t, apiservertesting.NewDefaultTestServerOptions(), append(flags,
		// Nobody makes service accounts here, and nodes are ready at once.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
	), storage)
	t.Cleanup(server.TearDownFn)

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(jobset.AddToScheme(scheme))
	utilruntime.Must(musterv1alpha1.AddToScheme(scheme))
	cfg := rest.CopyConfig(server.ClientConfig)
	cfg.QPS, cfg.Burst, cfg.ContentConfig = 1000, 2000, rest.ContentConfig{}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("building a client: %v", err)
	}
	cluster := &Cluster{Config: cfg, Client: c, Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := cluster.writeKubeconfig(); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func (c *Cluster) writeKubeconfig() error {
	k := clientcmdapi.NewConfig()
	k.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Config.Host, TLSServerName: c.Config.ServerName, CertificateAuthority: c.Config.CAFile, CertificateAuthorityData: c.Config.CAData, InsecureSkipTLSVerify: c.Config.Insecure}
	k.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		Token: c.Config.BearerToken, ClientCertificate: c.Config.CertFile, ClientKey: c.Config.KeyFile,
		ClientCertificateData: c.Config.CertData, ClientKeyData: c.Config.KeyData,
	}
	k.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	k.CurrentContext = "test"
	return clientcmd.WriteToFile(*k, c.Kubeconfig)
}

// root is the folder of this repository.
func root(t testing.TB) string { return moduleDir(t, ".", "github.com/muster-gpu/muster") }

// moduleDir is where the go command keeps a module that the module in dir uses.
func moduleDir(t testing.TB, dir, module string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-json", module)
	cmd.Dir = dir
	out, err := cmd.Output()
	var m struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err == nil && m.Dir == "" {
		download := exec.Command("go", "mod", "download", "-json", module)
		download.Dir = dir
		if out, err = download.Output(); err == nil {
			err = json.Unmarshal(out, &m)
		}
	}
	if err != nil || m.Dir == "" {
		t.Fatalf("finding module %s: %v", module, err)
	}
	return m.Dir
}

func (c *Cluster) applyCRDs(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in %s (%v)", dir, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(data), "\n---") {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal([]byte(doc), crd); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if crd.Kind != "CustomResourceDefinition" {
				continue
			}
			c.applyCRD(t, crd)
		}
	}
}

func (c *Cluster) applyCRD(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	crd.Spec.Conversion = nil
	if err := c.Client.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("creating CRD %s: %v", crd.Name, err)
	}
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := c.Client.Get(ctx, client.ObjectKey{Name: crd.Name}, crd); err != nil {
			return false, err
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("CRD %s is not established: %v", crd.Name, err)
	}
}

// Eventually waits until check returns nil, and fails the test with its last
// error otherwise.
func Eventually(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	last := fmt.Errorf("never checked")
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		// Not cut short by the deadline, so that the error says what was found.
		last = check(context.WithoutCancel(ctx))
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, last)
	}
}
