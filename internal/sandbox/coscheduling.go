package sandbox

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
)

// coschedulingUser is who coscheduling is: whatever a kube-scheduler may do it may
// do too.
const coschedulingUser = "system:kube-scheduler"

// coschedulingRules are what it is allowed beside that.
func coschedulingRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{"scheduling.x-k8s.io"}, Resources: []string{"podgroups", "podgroups/status"},
		Verbs: []string{"get", "list", "watch", "update", "patch"},
	}}
}

// coschedulingProgram runs scheduler-plugins' scheduler with the plugin for gangs
// as its manifests configure it, under a name of its own.
func (s *setup) coschedulingProgram() (program, error) {
	return s.plainSchedulerProgram(componentCoscheduling, binaryCoscheduling, fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: %q
  qps: %d
  burst: %d
profiles:
- schedulerName: %s
  plugins:
    multiPoint:
      enabled:
      - name: Coscheduling
    queueSort:
      enabled:
      - name: Coscheduling
      disabled:
      - name: "*"
  pluginConfig:
  - name: Coscheduling
    args:
      permitWaitingTimeSeconds: 10
`, s.identity(componentCoscheduling), s.options.ClientQPS, 2*s.options.ClientQPS, CoschedulingName))
}

// beginCoscheduling is how to begin scheduler-plugins' scheduler, if it is chosen.
func (b *bringUp) beginCoscheduling() []func(context.Context) error {
	if !b.options.Has(WithCoscheduling) {
		return nil
	}
	p, err := b.coschedulingProgram()
	return []func(context.Context) error{func(ctx context.Context) error {
		if err != nil {
			return err
		}
		if err := b.permit(ctx, coschedulingUser, componentCoscheduling, coschedulingRules()); err != nil {
			return err
		}
		return b.start(ctx, p)
	}}
}
