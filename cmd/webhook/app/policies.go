package app

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/muster-gpu/muster/admission/audit"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/policy"
)

// identity is that of this replica among all.
func identity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("naming this replica: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// policyMetrics are those of the engine's policies. The auditor may be nil.
func policyMetrics(engine *policy.Engine, auditor *audit.Auditor) []metrics.Policy {
	var all []metrics.Policy
	var audited map[string]audit.Result
	if auditor != nil {
		audited = auditor.Results()
	}
	for _, s := range engine.Statuses() {
		all = append(all, metrics.Policy{
			Name: s.Name, Compiled: s.Compiled, Reviews: s.Counts.Reviews, Failed: s.Counts.Failed,
			Denied: s.Counts.Denied, Warned: s.Counts.Warned, DryRun: s.Counts.DryRun,
		})
		if result, found := audited[s.Name]; found {
			all[len(all)-1].Audited = &metrics.Audited{Denied: result.Denied, Warned: result.Warned, DryRun: result.DryRun}
		}
	}
	return all
}
