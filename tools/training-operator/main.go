// Command training-operator runs the controllers of Kubeflow's Training
// Operator, version 1, and their webhooks, outside a cluster. The operator's own
// main program makes its certificates in a fixed folder of the machine, and has
// its webhooks called by a Service; this one is given its certificates.
package main

import (
	"flag"
	"fmt"
	"os"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

func main() {
	health := flag.String("health-probe-bind-address", "127.0.0.1:8081", "address of the probes")
	port := flag.Int("webhook-port", 9443, "port of the webhooks, on 127.0.0.1")
	certificates := flag.String("cert-dir", "", "folder with tls.crt and tls.key of the webhooks")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(*health, *port, *certificates); err != nil {
		fmt.Fprintln(os.Stderr, "training-operator:", err)
		os.Exit(1)
	}
}

func run(health string, port int, certificates string) error {
	// The defaults of the operator's flags.
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	config.Config.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kubeflow.AddToScheme(scheme))
	// The controllers watch pod groups where a cluster has them.
	utilruntime.Must(schedulerplugins.AddToScheme(scheme))
	utilruntime.Must(volcano.AddToScheme(scheme))
	api, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	api.QPS, api.Burst = 500, 1000
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificates})
	manager, err := ctrl.NewManager(api, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		WebhookServer:          server,
		HealthProbeBindAddress: health,
	})
	if err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	if err := manager.AddReadyzCheck("webhooks", server.StartedChecker()); err != nil {
		return fmt.Errorf("adding the probe: %w", err)
	}
	for kind, setUp := range controllers.SupportedSchemeReconciler {
		if err := setUp(manager, common.GenNonGangSchedulerSetupFunc(), 1); err != nil {
			return fmt.Errorf("setting up the controller of %ss: %w", kind, err)
		}
	}
	for kind, setUp := range webhooks.SupportedSchemeWebhook {
		if err := setUp(manager); err != nil {
			return fmt.Errorf("setting up the webhook of %ss: %w", kind, err)
		}
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
