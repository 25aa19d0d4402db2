package sandbox

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The components, as status, logs, kill and restart call them.
const (
	componentEtcd              = "etcd"
	componentAPIServer         = "kube-apiserver"
	componentControllerManager = "kube-controller-manager"
	componentKubeScheduler     = "kube-scheduler"
	componentSimulator         = "simulator"
	componentJobSet            = "jobset"
	componentTrainer           = "trainer"
	componentKueue             = "kueue"
	componentTrainingOperator  = "training-operator"
	componentCoscheduling      = "coscheduling"
	componentMusterScheduler   = "muster-scheduler"
	componentMusterWebhook     = "muster-webhook"
	// componentGPUAgent goes before the name of its node, after a dash.
	componentGPUAgent = "muster-gpu-agent"
)

// supervisorLog is the name under which logs shows the supervisor's own.
const supervisorLog = "supervisor"

// setup is what the components of one run share.
type setup struct {
	layout
	options Options
	ports   *portRange
	ca      *authority
	// server is the API server's URL.
	server string
	// apiPort is the port in server.
	apiPort int
	// executable is the path of this program, which is also the simulator.
	executable string
}

// The programs' names in BinDir.
const (
	binaryEtcd              = "etcd"
	binaryAPIServer         = "kube-apiserver"
	binaryControllerManager = "kube-controller-manager"
	binaryKubeScheduler     = "kube-scheduler"
	binaryJobSet            = "jobset-controller"
	binaryTrainer           = "trainer-controller"
	binaryKueue             = "kueue-controller"
	binaryTrainingOperator  = "training-operator"
	binaryCoscheduling      = "coscheduling"
	binaryScheduler         = "scheduler"
	binaryWebhook           = "webhook"
	binaryGPUAgent          = "gpu-agent"
	binarySandbox           = "sandbox"
)

// binaries lists the programs that the chosen parts need.
func (o Options) binaries() []string {
	names := []string{binaryEtcd, binaryAPIServer, binaryControllerManager, binarySandbox}
	for _, part := range []struct{ part, binary string }{
		{WithJobSet, binaryJobSet}, {WithTrainer, binaryTrainer}, {WithScheduler, binaryScheduler},
		{WithWebhook, binaryWebhook}, {WithKubeScheduler, binaryKubeScheduler}, {WithKueue, binaryKueue},
		{WithGPUAgent, binaryGPUAgent}, {WithTrainingOperator, binaryTrainingOperator}, {WithCoscheduling, binaryCoscheduling},
	} {
		if o.Has(part.part) {
			names = append(names, part.binary)
		}
	}
	return names
}

// binary is the path of a program. etcd and kube-apiserver are taken from the
// folder that KUBEBUILDER_ASSETS names, where it has them.
func (o Options) binary(name string) string {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" && (name == binaryEtcd || name == binaryAPIServer) {
		if path := filepath.Join(assets, name); isProgram(path) {
			return path
		}
	}
	return filepath.Join(o.BinDir, name)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// checkBinaries says which programs are missing and how to get them.
func (o Options) checkBinaries() error {
	var missing []string
	for _, name := range o.binaries() {
		if path := o.binary(name); !isProgram(path) {
			missing = append(missing, path)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("not built yet: %s (run \"make sandbox\", for kueue \"make sandbox-kueue\", for training-operator \"make sandbox-training-operator\", for coscheduling \"make sandbox-coscheduling\", or leave the part out with --with)", strings.Join(missing, ", "))
}

func (s *setup) etcdProgram() program {
	client, peer := s.ports.next(), s.ports.next()
	clientURL, peerURL := "http://"+loopback(client), "http://"+loopback(peer)
	return program{
		name: componentEtcd, path: s.options.binary(binaryEtcd),
		args: []string{
			"--name=sandbox", "--data-dir=" + s.etcd(),
			"--listen-client-urls=" + clientURL, "--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=sandbox=" + peerURL,
			// Nothing here outlives the machine, and a sync per write costs
			// more than everything else etcd does.
			"--unsafe-no-fsync", "--log-level=warn",
		},
		ports: map[string]int{"serving": client, "peer": peer},
		ready: httpReady(clientURL + "/health"),
		wait:  30 * time.Second, grace: 3 * time.Second,
	}
}

func (s *setup) apiServerProgram(etcdPort int) program {
	more := slices.Concat(s.options.gates(), s.auditFlags())
	if s.options.NativePodGroups {
		more = append(more, "--runtime-config=scheduling.k8s.io/v1beta1=true")
	}
	return program{
		name: componentAPIServer, path: s.options.binary(binaryAPIServer),
		args: append([]string{
			"--etcd-servers=http://" + loopback(etcdPort),
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.apiPort),
			"--cert-dir=" + s.certDir(componentAPIServer),
			"--tls-cert-file=" + filepath.Join(s.certDir(componentAPIServer), "tls.crt"),
			"--tls-private-key-file=" + filepath.Join(s.certDir(componentAPIServer), "tls.key"),
			"--token-auth-file=" + s.pki("tokens.csv"),
			"--authorization-mode=RBAC",
			// Nobody has a client certificate; but with authorities for them
			// the API server publishes the configuration by which the secure
			// ports of the other components authenticate their callers.
			"--client-ca-file=" + s.pki("ca.crt"),
			"--requestheader-client-ca-file=" + s.pki("front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + s.pki("sa.pub"),
			"--service-account-signing-key-file=" + s.pki("sa.key"),
			"--service-cluster-ip-range=10.0.0.0/16",
			"--allow-privileged=true",
			// It taints every new node until the controller that judges nodes
			// takes the taint off, which does not run here.
			"--disable-admission-plugins=TaintNodesByCondition",
			// A loopback address cannot be an endpoint of the service
			// "kubernetes"; the reconciler would only complain.
			"--endpoint-reconciler-type=none",
			"--v=1",
		}, more...),
		ports: map[string]int{"serving": s.apiPort},
		ready: httpReady(s.server + "/readyz"),
		// It waits on TERM for every open watch, which its clients, also
		// those of other programs, hold for minutes.
		wait: 90 * time.Second, grace: 2 * time.Second,
	}
}

// gates are the flags of the control plane that turn on what is off in it.
func (o Options) gates() []string {
	if o.NativePodGroups {
		return []string{"--feature-gates=GenericWorkload=true"}
	}
	return nil
}

func (s *setup) controllerManagerProgram() program {
	port := s.ports.next()
	kubeconfig := s.identity(componentControllerManager)
	return program{
		name: componentControllerManager, path: s.options.binary(binaryControllerManager),
		args: append([]string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + s.certDir(componentControllerManager),
			"--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + s.pki("sa.key"),
			"--root-ca-file=" + s.pki("ca.crt"),
			// The nodes are simulated: their health is what a test says it is.
			"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller",
			// The defaults (20, 30) make a gang of 500 pods take half a minute
			// to exist.
			"--kube-api-qps=500", "--kube-api-burst=1000", "--concurrent-job-syncs=10",
			"--v=1",
		}, s.options.gates()...),
		ports: map[string]int{"serving": port},
		ready: httpReady("https://" + loopback(port) + "/healthz"),
		wait:  60 * time.Second, grace: 3 * time.Second,
	}
}

func (s *setup) kubeSchedulerProgram() (program, error) {
	return s.plainSchedulerProgram(componentKubeScheduler, binaryKubeScheduler, fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: %q
  qps: 500
  burst: 1000
`, s.identity(componentKubeScheduler)))
}

// plainSchedulerProgram runs a kube-scheduler, of whatever plugins it was built,
// with that configuration.
func (s *setup) plainSchedulerProgram(component, binary, configuration string) (program, error) {
	port := s.ports.next()
	kubeconfig := s.identity(component)
	path := s.config(component + ".yaml")
	if err := writeFile(path, []byte(configuration), 0o600); err != nil {
		return program{}, err
	}
	return program{
		name: component, path: s.options.binary(binary),
		args: []string{
			"--config=" + path, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + s.certDir(component),
		},
		ports: map[string]int{"serving": port},
		ready: httpReady("https://" + loopback(port) + "/readyz"),
		wait:  60 * time.Second, grace: 3 * time.Second,
	}, nil
}

func (s *setup) simulatorProgram() program {
	port := s.ports.next()
	args := []string{
		"simulate", "--kubeconfig=" + s.identity(componentSimulator), "--health-port=" + strconv.Itoa(port),
		"--nodes=" + strconv.Itoa(s.options.Nodes), "--gpus-per-node=" + strconv.Itoa(s.options.GPUsPerNode),
		"--gpu-product=" + s.options.GPUProduct, "--devices=" + strconv.FormatBool(s.options.Devices),
		// Relative to the sandbox's folder: the path of a socket has little room.
		"--agents=" + strconv.Itoa(s.options.GPUAgents), "--agent-dir=" + nodesFolder,
	}
	if s.options.NodeLabels != "" {
		args = append(args, "--node-labels="+s.options.NodeLabels)
	}
	return program{
		name: componentSimulator, path: s.executable, args: args,
		ports: map[string]int{"health": port},
		// It is ready when its nodes are.
		ready: httpReady("http://" + loopback(port) + "/readyz"),
		wait:  time.Duration(60+s.options.Nodes/20) * time.Second, grace: 3 * time.Second,
	}
}

// jobSetProgram and trainerProgram run the upstream controllers as the service
// accounts of their own manifests.
func (s *setup) jobSetProgram() (program, error) {
	webhook, health := s.ports.next(), s.ports.next()
	configuration := fmt.Sprintf(`apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection:
  leaderElect: false
internalCertManagement:
  enable: false
webhook:
  host: 127.0.0.1
  port: %d
  certDir: %q
health:
  healthProbeBindAddress: %s
metrics:
  bindAddress: "0"
clientConnection:
  qps: 500
  burst: 500
`, webhook, s.certDir(componentJobSet), loopback(health))
	path := s.config("jobset.yaml")
	if err := writeFile(path, []byte(configuration), 0o600); err != nil {
		return program{}, err
	}
	if err := s.ca.issue(componentJobSet, s.certDir(componentJobSet)); err != nil {
		return program{}, err
	}
	return program{
		name: componentJobSet, path: s.options.binary(binaryJobSet), args: []string{"--config=" + path},
		env:   []string{"KUBECONFIG=" + s.identity(componentJobSet)},
		ports: map[string]int{"webhook": webhook, "health": health},
		ready: httpReady("http://" + loopback(health) + "/readyz"),
		wait:  60 * time.Second, grace: 3 * time.Second,
	}, nil
}

func (s *setup) trainerProgram() (program, error) {
	webhook, health := s.ports.next(), s.ports.next()
	configuration := fmt.Sprintf(`apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
leaderElection:
  leaderElect: false
certManagement:
  enable: false
webhook:
  host: 127.0.0.1
  port: %d
health:
  healthProbeBindAddress: %s
metrics:
  bindAddress: "0"
clientConnection:
  qps: 500
  burst: 500
`, webhook, loopback(health))
	path := s.config("trainer.yaml")
	if err := writeFile(path, []byte(configuration), 0o600); err != nil {
		return program{}, err
	}
	// The Trainer has no setting for its certificate's folder: it looks in a
	// fixed place under the temporary folder.
	temporary := s.certDir(componentTrainer)
	if err := s.ca.issue(componentTrainer, filepath.Join(temporary, "k8s-webhook-server", "serving-certs")); err != nil {
		return program{}, err
	}
	return program{
		name: componentTrainer, path: s.options.binary(binaryTrainer), args: []string{"--config=" + path},
		env:   []string{"KUBECONFIG=" + s.identity(componentTrainer), "TMPDIR=" + temporary},
		ports: map[string]int{"webhook": webhook, "health": health},
		ready: httpReady("http://" + loopback(health) + "/readyz"),
		wait:  60 * time.Second, grace: 3 * time.Second,
	}, nil
}

// probeClient trusts any certificate: a probe asks a port of this machine
// whether it serves, and sends nothing.
var probeClient = &http.Client{Transport: &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	DisableKeepAlives: true,
}}

// httpReady returns a probe that wants 200 OK.
func httpReady(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("probing %s: %w", url, err)
		}
		response, err := probeClient.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	}
}
