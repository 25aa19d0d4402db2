package scheduling

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

const (
	// provisionEvery is how often it is looked at who waits for nodes.
	provisionEvery = 2 * time.Second
	// provisioningStays is how long a request outlives its need while its job waits
	// for something else: what a job waits for may change from one try to the next.
	provisioningStays = 30 * time.Second
	// noteNodesRefused warns: an autoscaler does not bring the nodes of a job.
	noteNodesRefused = "NodesRefused"
)

// Provisioning is how nodes are asked for that a job without pods waits for.
type Provisioning struct {
	// ClassName is the provisioningClassName of the ProvisioningRequests; empty:
	// none are made.
	ClassName string
	// Parameters are theirs.
	Parameters map[string]string
	// Retry is of requests that have failed; at its limit the last one stands.
	Retry Backoff
}

// provisioner keeps one ProvisioningRequest for each job without pods that has quota
// and no nodes.
type provisioner struct {
	*Jobs
	// unwanted is since when requests are not needed that are still there, and failed
	// how many in a row have failed before the one that is made next; both by the UID
	// of their Workload.
	unwanted map[types.UID]time.Time
	failed   map[types.UID]failures
}

// failures are how many requests of a job have failed, which wanted nodes last then.
type failures struct {
	count  int
	wanted time.Time
}

func newProvisioner(j *Jobs) *provisioner {
	return &provisioner{Jobs: j, unwanted: map[types.UID]time.Time{}, failed: map[types.UID]failures{}}
}

// run works until ctx is done. Without a class it only takes back what was asked for
// before.
func (p *provisioner) run(ctx context.Context) {
	asks := p.provisioning.ClassName != ""
	for {
		served, err := p.api.serves(ctx, provisioningGVK)
		switch {
		case err != nil || !served:
		case asks:
			err = p.provision(ctx)
		default:
			err = p.withdrawAll(ctx)
		}
		if err == nil && !asks {
			return
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Asking for nodes failed, trying again")
		}
		select {
		case <-ctx.Done():
			return
		case <-p.clock.After(provisionEvery):
		}
	}
}

// provision makes the requests that are missing, deletes those that are not needed,
// and tells what became of the others.
func (p *provisioner) provision(ctx context.Context) error {
	if !p.ledger.knowsAll() {
		// A request that a scheduler before this one has made would seem to be nobody's.
		return nil
	}
	have, err := requestsIn(ctx, p.reader)
	if err != nil {
		return err
	}
	now := p.clock.Now()
	var errs []error
	for _, w := range p.ledger.wantNodes(now) {
		request := have[w.wl.UID]
		delete(have, w.wl.UID)
		if f, some := p.failed[w.wl.UID]; some {
			p.failed[w.wl.UID] = failures{f.count, now}
		}
		errs = append(errs, p.ask(ctx, w, request, now))
	}
	maps.DeleteFunc(p.failed, func(_ types.UID, f failures) bool { return now.Sub(f.wanted) >= provisioningStays })
	maps.DeleteFunc(p.unwanted, func(uid types.UID, _ time.Time) bool { return have[uid] == nil })
	for uid, request := range have {
		if p.unwanted[uid].IsZero() {
			p.unwanted[uid] = now
		}
		job, err := p.jobOfRequest(ctx, request)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if job == nil || !p.ledger.waitsStill(job.UID) || now.Sub(p.unwanted[uid]) >= provisioningStays {
			errs = append(errs, p.withdraw(ctx, request))
			if job != nil {
				p.ledger.sayProvisioning(job.UID, "")
			}
		}
	}
	return errors.Join(errs...)
}

// withdrawAll deletes all requests. Nobody watches them for that.
func (p *provisioner) withdrawAll(ctx context.Context) error {
	have, err := requestsIn(ctx, p.client)
	if err != nil {
		return err
	}
	var errs []error
	for _, request := range have {
		errs = append(errs, p.withdraw(ctx, request))
	}
	return errors.Join(errs...)
}

// jobOfRequest is the job of a request's Workload; nil if that is gone.
func (p *provisioner) jobOfRequest(ctx context.Context, request *unstructured.Unstructured) (*workload.Owner, error) {
	of, wl := madeFor(request), &kueue.Workload{}
	switch err := p.reader.Get(ctx, client.ObjectKey{Namespace: request.GetNamespace(), Name: of.Name}, wl); {
	case isGone(err) || (err == nil && wl.UID != of.UID):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Workload of ProvisioningRequest %s: %w", klog.KObj(request), err)
	}
	if owner, ok := workload.OwnerOf(wl); ok {
		return &owner, nil
	}
	return nil, nil
}

// ask has nodes asked for a job by a request, which is nil if there is none yet. One
// for other pods than the job has now is made anew, and so is one that has failed,
// after a while.
func (p *provisioner) ask(ctx context.Context, w wantsNodes, request *unstructured.Unstructured, now time.Time) error {
	hash := p.hash(w)
	if request == nil {
		err := p.create(ctx, w, hash)
		var other notMusters
		if errors.As(err, &other) {
			p.say(w.job, fmt.Sprintf("no nodes are asked for: %v", other), true)
			return nil
		}
		return err
	}
	if request.GetLabels()[provisioningHash] != hash {
		delete(p.failed, w.wl.UID)
		return p.withdraw(ctx, request)
	}
	failed := failureOf(request)
	if failed == nil {
		p.say(w.job, fmt.Sprintf("nodes are asked for by ProvisioningRequest %s", request.GetName()), false)
		return nil
	}
	n := failuresBefore(request) + 1
	again := "it is not made anew"
	if retry := p.provisioning.Retry; !retry.spent(n) {
		at := failed.LastTransitionTime.Add(retry.wait(n))
		if !now.Before(at) {
			p.failed[w.wl.UID] = failures{n, now}
			return p.withdraw(ctx, request)
		}
		again = fmt.Sprintf("it is made anew at %s", at.UTC().Format(time.RFC3339))
	}
	p.say(w.job, fmt.Sprintf("ProvisioningRequest %s brings no nodes (%s): %s; %s", request.GetName(), failed.Reason, shorten(failed.Message), again), true)
	return nil
}

// say tells of the nodes that are asked for a job with its reason, and in an event if
// they will not come.
func (p *provisioner) say(job *workload.Job, says string, refused bool) {
	if p.ledger.sayProvisioning(job.Owner.UID, "; "+says) && refused {
		p.note(job, noteNodesRefused, says)
	}
}
