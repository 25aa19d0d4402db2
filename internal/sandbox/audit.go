package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// auditPolicy has the requests of Muster's service accounts written down, without what is
// in them, once each is answered or its answer begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts:` + musterNamespace + `"]
- level: None
`

// AuditLog is the file with what Muster's programs have asked of the API server, an event
// of audit.k8s.io/v1 a line, where Options.Audit is set.
func (s *Sandbox) AuditLog() string { return s.layout.auditLog() }

func (l layout) auditLog() string { return filepath.Join(l.logs(), "audit.jsonl") }

func (s *setup) auditPolicyFile() string { return s.config("audit-policy.yaml") }

func (s *setup) auditFlags() []string {
	if !s.options.Audit {
		return nil
	}
	return []string{"--audit-policy-file=" + s.auditPolicyFile(), "--audit-log-path=" + s.auditLog()}
}

func (b *bringUp) writeAuditPolicy() error {
	if !b.options.Audit {
		return nil
	}
	// The API server would go on with that of an earlier run.
	if err := os.Remove(b.auditLog()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the last audit log: %w", err)
	}
	return writeFile(b.auditPolicyFile(), []byte(auditPolicy), 0o600)
}
