package testsandbox

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/sandbox"
)

// root is the repository's folder, seen from the packages below test/.
const root = "../.."

// ClientQPS is what a client without bounds may send to the API server in a
// second: so much that nobody is held up by it.
const ClientQPS = 5000

const (
	// startWithin bounds the start of a sandbox.
	startWithin = 5 * time.Minute
	// componentWithin bounds the end or the start of one component.
	componentWithin = 2 * time.Minute
)

// Cluster is a running sandbox, as its administrator sees it.
type Cluster struct {
	*sandbox.Sandbox
	// Client reads and writes the API directly. It bounds each request.
	Client client.Client
	// Config is for clients of other kinds. It bounds nothing.
	Config *rest.Config
}

// BinDir is the folder of the built programs, absolute.
func BinDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Up runs the sandbox that options ask for, in the folder of that name, until
// the test ends. Programs that are not built fail the test, which says how to
// build them.
func Up(t testing.TB, name string, options sandbox.Options) *Cluster {
	t.Helper()
	options.Dir, options.BinDir = Folder(t, name), BinDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	s, err := sandbox.Up(ctx, options)
	if err != nil {
		t.Fatalf("starting the sandbox: %v", err)
	}
	config, err := s.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = ClientQPS, 2*ClientQPS
	// What policies warn of in the pods of tests is not looked at.
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(jobset.AddToScheme(scheme))
	utilruntime.Must(musterv1alpha1.AddToScheme(scheme))
	bounded := rest.CopyConfig(config)
	bounded.Timeout = 10 * time.Second
	c, err := client.New(bounded, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{Sandbox: s, Client: c, Config: config}
}

// Watching is a client that watches as well. It does not bound its requests.
func (c *Cluster) Watching(t testing.TB) client.WithWatch {
	t.Helper()
	w, err := client.NewWithWatch(c.Config, client.Options{Scheme: c.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// KillNow ends a component with SIGKILL.
func (c *Cluster) KillNow(t testing.TB, component string) {
	t.Helper()
	c.within(t, component, c.Kill)
}

// RestartNow starts a component again and waits until it is ready.
func (c *Cluster) RestartNow(t testing.TB, component string) {
	t.Helper()
	c.within(t, component, c.Restart)
}

func (c *Cluster) within(t testing.TB, component string, do func(context.Context, string) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), componentWithin)
	defer cancel()
	if err := do(ctx, component); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until check returns nil, and fails the test with its last
// error otherwise.
func Eventually(t testing.TB, patience time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Poll(ctx, check); err != nil {
		t.Fatalf("waiting %s for %s: %v", patience, what, err)
	}
}

// Poll checks until check returns nil or ctx ends; then it returns the last
// error. A check is not cut short by ctx, so that its error says what was found;
// the client bounds each request.
func Poll(ctx context.Context, check func(ctx context.Context) error) error {
	last := errors.New("never checked")
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = check(context.WithoutCancel(ctx))
		return last == nil, nil
	})
	if err == nil {
		return nil
	}
	return last
}
