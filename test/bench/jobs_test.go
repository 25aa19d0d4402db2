package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// seeWorkload takes in what a Workload says now.
func (d *driver) seeWorkload(wl *kueue.Workload) error {
	seen := time.Now()
	owner := metav1.GetControllerOf(wl)
	if owner == nil {
		return fmt.Errorf("Workload %s has no owner", client.ObjectKeyFromObject(wl))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[types.NamespacedName{Namespace: wl.Namespace, Name: owner.Name}]
	if j == nil || j.said.finished {
		return nil
	}
	if err := d.history.workload(j, wl); err != nil {
		return err
	}
	what, now := j.said.then(wl)
	d.said[what]++
	j.said = now
	if what == saysAdmitted && j.admitted.IsZero() {
		j.admitted = seen
	}
	if what == saysFinished {
		j.told = seen
		d.unfinished--
		d.checkDone()
	}
	return nil
}

// seeJob takes in whether a job runs now.
func (d *driver) seeJob(o *batchv1.Job) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[client.ObjectKeyFromObject(o)]
	if j == nil || j.ended {
		return nil
	}
	j.version = o.ResourceVersion
	runs := o.Spec.Suspend == nil || !*o.Spec.Suspend
	switch {
	case runs && !j.running:
		if j.run++; j.run == 1 {
			j.resumed = time.Now()
		}
		t := turn{j, j.run}
		time.AfterFunc(j.class.runs, func() { d.due <- t })
	case !runs && j.running:
		d.stopped++
	}
	j.running = runs
	return nil
}

// endJobs ends the jobs whose time is up.
func (d *driver) endJobs(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-d.due:
			if err := d.end(ctx, t); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// end marks a job complete, unless it was suspended meanwhile.
func (d *driver) end(ctx context.Context, t turn) error {
	d.mu.Lock()
	runs, version := t.job.running && t.job.run == t.run, t.version
	d.mu.Unlock()
	if !runs {
		return nil
	}
	patch, err := completion(version, t.class.runs)
	if err != nil {
		return err
	}
	o := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.key.Namespace, Name: t.key.Name}}
	err = d.cluster.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) {
		// Perhaps it was suspended; the watch says so.
		time.AfterFunc(20*time.Millisecond, func() { d.due <- t })
		return nil
	}
	if err != nil {
		return fmt.Errorf("completing Job %s: %w", t.key, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.ended, t.over = true, time.Now()
	d.lastEnd = t.over
	d.unended--
	defer d.checkDone()
	return d.history.end(t.job, o.ResourceVersion)
}

// completion is a patch of a Job's status, as its controller would write it.
func completion(version string, ran time.Duration) ([]byte, error) {
	now := metav1.Now()
	condition := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "CompletionsReached", Message: "It has run for its time.",
			LastProbeTime: now, LastTransitionTime: now,
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		"status": map[string]any{
			"startTime": metav1.NewTime(now.Add(-ran)), "completionTime": now, "succeeded": 1,
			"conditions": []batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet), condition(batchv1.JobComplete)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the end of a job: %w", err)
	}
	return patch, nil
}
