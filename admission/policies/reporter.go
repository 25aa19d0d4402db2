package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/admission/audit"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/policy"
)

const (
	// leaseName is the Lease of the replica that writes.
	leaseName = "muster-webhook"
	// reportEvery is how often what the policies have found is written; what has become
	// of a changed policy is written at once.
	reportEvery = 10 * time.Second
)

// Reporter writes the statuses of AdmissionPolicies, as long as this replica is the one
// that does. The counts are those of its own engine: all replicas' are in the metrics.
type Reporter struct {
	feed     *Feed
	engine   *policy.Engine
	client   kubernetes.Interface
	objects  dynamic.Interface
	lease    metav1.ObjectMeta
	identity string
	due      chan struct{}
	// auditor is nil where nothing is audited.
	auditor *audit.Auditor
}

// NewReporter returns a Reporter of what the feed brings to the engine. The Lease is in
// the namespace, and names the identity, which no other replica has. The auditor, which may
// be nil, runs as long as this replica is the one that writes.
func NewReporter(feed *Feed, engine *policy.Engine, auditor *audit.Auditor, client kubernetes.Interface, objects dynamic.Interface, namespace, identity string) *Reporter {
	r := &Reporter{
		feed: feed, engine: engine, client: client, objects: objects, due: make(chan struct{}, 1), auditor: auditor,
		lease: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}, identity: identity,
	}
	feed.whenLoaded = func() {
		select {
		case r.due <- struct{}{}:
		default: // it is due already
		}
	}
	return r
}

// Run takes part in who writes until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: r.lease, Client: r.client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: r.identity},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true, Name: leaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: r.report,
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			panic(err) // the configuration is the one above
		}
		elector.Run(ctx)
	}
}

// report writes what has changed until ctx ends.
func (r *Reporter) report(ctx context.Context) {
	if r.auditor != nil {
		go r.auditor.Run(ctx)
	}
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		if r.feed.Ready() == nil {
			if err := r.write(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not write what has become of policies", "retryIn", reportEvery)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.due:
		case <-ticker.C:
		}
	}
}

// write writes the statuses that are not right.
func (r *Reporter) write(ctx context.Context) error {
	statuses := map[string]policy.Status{}
	for _, s := range r.engine.Statuses() {
		statuses[s.Name] = s
	}
	var failed []error
	for _, object := range r.feed.Objects() {
		s, known := statuses[object.Name]
		// One that has just been changed, or made, is compiled first.
		if !known || s.Generation != object.Generation {
			continue
		}
		if err := r.writeOne(ctx, object, &s); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// audited writes what the last audit found of a policy, if there was one.
func (r *Reporter) audited(into *v1alpha1.AdmissionPolicyStatus, name string) {
	if r.auditor == nil {
		into.Audit = nil
		return
	}
	result, found := r.auditor.Results()[name]
	if !found {
		return
	}
	into.Audit = &v1alpha1.PolicyAudit{
		At: metav1.NewTime(result.At).Rfc3339Copy(), Violations: result.Denied + result.Warned + result.DryRun, Failed: result.Failed,
	}
	for i := range result.Found {
		into.Audit.Found = append(into.Audit.Found, result.Found[i].ToAPI())
	}
}

func (r *Reporter) writeOne(ctx context.Context, object *v1alpha1.AdmissionPolicy, s *policy.Status) error {
	want := object.DeepCopy()
	s.ToAPI(&want.Status)
	r.audited(&want.Status, s.Name)
	if equality.Semantic.DeepEqual(want.Status, object.Status) {
		return nil
	}
	want.APIVersion, want.Kind = v1alpha1.GroupVersion.String(), "AdmissionPolicy"
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("encoding the status of AdmissionPolicy %s: %w", object.Name, err)
	}
	_, err = r.objects.Resource(admissionPolicies).UpdateStatus(ctx, &unstructured.Unstructured{Object: fields}, metav1.UpdateOptions{})
	// A conflict means that the object was changed, and is compiled and written again.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("writing the status of AdmissionPolicy %s: %w", object.Name, err)
	}
	return nil
}
