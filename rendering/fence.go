package rendering

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FenceName is the name of the ValidatingAdmissionPolicy, and of its binding,
// that lets the scheduler create pods as a dry run and in no other way.
const FenceName = "muster-scheduler-creates-no-pods"

// dryRunOnly is what the policy demands.
const dryRunOnly = "has(request.dryRun) && request.dryRun"

const (
	// standsFor is how long a fence that was found standing is believed.
	standsFor = 30 * time.Second
	// missingFor is how long one that was found missing is.
	missingFor = 5 * time.Second
)

// fence finds out whether the policy that limits this process is in place. It
// guards against a mistake, and against whoever gets hold of the scheduler's
// token; so an unexpected change of the policy counts as if it were missing.
type fence struct {
	client client.Client
	clock  clock.PassiveClock

	mu    sync.Mutex
	user  string
	until time.Time
	// why it does not stand; empty if it does.
	why string
	// told is what was last logged; the first verdict is always told.
	told *string
}

// stands says whether dry runs may be made. The API is asked now and then.
func (f *fence) stands(ctx context.Context) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.clock.Now(); !now.Before(f.until) {
		asking, cancel := context.WithTimeout(ctx, dryRunTimeout)
		f.why = ""
		if err := f.check(asking); err != nil {
			f.why = err.Error()
		}
		cancel()
		f.until = now.Add(standsFor)
		if f.why != "" {
			f.until = now.Add(missingFor)
		}
		f.tell(klog.FromContext(ctx))
	}
	return f.why == ""
}

func (f *fence) tell(logger klog.Logger) {
	if f.told != nil && *f.told == f.why {
		return
	}
	f.told = new(f.why)
	if f.why == "" {
		logger.Info("Pods are rendered by dry runs", "policy", FenceName)
	} else {
		logger.Info("Pods are rendered locally, without what webhooks inject: no dry run is made without the policy that allows nothing else", "policy", FenceName, "why", f.why)
	}
}

func (f *fence) check(ctx context.Context) error {
	if f.user == "" {
		me := &authenticationv1.SelfSubjectReview{}
		if err := f.client.Create(ctx, me); err != nil {
			return fmt.Errorf("asking who this process is: %w", err)
		}
		f.user = me.Status.UserInfo.Username
	}
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, o := range []client.Object{policy, binding} {
		if err := f.client.Get(ctx, client.ObjectKey{Name: FenceName}, o); err != nil {
			return err
		}
	}
	return fences(policy, binding, f.user)
}

// fences says what is wrong with the policy and its binding as a fence for a
// user; nil if they deny every pod that the user creates for real.
func fences(policy *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding, user string) error {
	spec := &policy.Spec
	itself := "request.userInfo.username == " + strconv.Quote(user)
	switch {
	case policy.DeletionTimestamp != nil || binding.DeletionTimestamp != nil:
		return fmt.Errorf("the policy or its binding is being deleted")
	case spec.FailurePolicy != nil && *spec.FailurePolicy != admissionv1.Fail:
		return fmt.Errorf("the policy's failurePolicy is %s", *spec.FailurePolicy)
	case spec.ParamKind != nil:
		return fmt.Errorf("the policy has parameters")
	case !matchesPods(spec.MatchConstraints):
		return fmt.Errorf("the policy does not match every creation of a pod")
	case len(spec.MatchConditions) != 1 || spec.MatchConditions[0].Expression != itself:
		return fmt.Errorf("the policy's only match condition is not %s", itself)
	case len(spec.Validations) != 1 || spec.Validations[0].Expression != dryRunOnly:
		return fmt.Errorf("the policy's only validation is not %s", dryRunOnly)
	case binding.Spec.PolicyName != policy.Name:
		return fmt.Errorf("the binding is for the policy %s", binding.Spec.PolicyName)
	case !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny):
		return fmt.Errorf("the binding does not deny")
	case binding.Spec.ParamRef != nil:
		return fmt.Errorf("the binding has parameters")
	case binding.Spec.MatchResources != nil:
		return fmt.Errorf("the binding is limited to some resources")
	}
	return nil
}

// matchesPods says that nothing is left out of a policy's constraints.
func matchesPods(m *admissionv1.MatchResources) bool {
	if m == nil || len(m.ExcludeResourceRules) > 0 || !everything(m.NamespaceSelector) || !everything(m.ObjectSelector) {
		return false
	}
	return slices.ContainsFunc(m.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		has := func(list []string, want string) bool {
			return slices.Contains(list, want) || slices.Contains(list, "*")
		}
		return len(r.ResourceNames) == 0 && (r.Scope == nil || *r.Scope != admissionv1.ClusterScope) &&
			(slices.Contains(r.Operations, admissionv1.Create) || slices.Contains(r.Operations, admissionv1.OperationAll)) &&
			has(r.APIGroups, "") && has(r.APIVersions, "v1") && has(r.Resources, "pods")
	})
}

func everything(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}
