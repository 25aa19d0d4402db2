package conversion

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Path is where the API server asks.
const Path = "/convert"

// Definitions are the names of the CustomResourceDefinitions whose objects Handler
// converts.
func Definitions() []string {
	return []string{"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io", "workloads.kueue.x-k8s.io"}
}

// Handler answers ConversionReviews of ClusterQueues, LocalQueues, Cohorts and
// Workloads. The other kinds of Kueue's API have the same fields in both versions,
// and their definitions ask nobody.
func Handler() http.Handler {
	scheme := runtime.NewScheme()
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(kueuev1beta1.AddToScheme(scheme))
	return conversion.NewWebhookHandler(scheme, conversion.NewRegistry())
}
