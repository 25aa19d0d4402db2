package publish

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// Writer writes the status of a GPUNode, and creates it where there is none.
type Writer interface {
	Write(ctx context.Context, node string, status v1alpha1.GPUNodeStatus) error
}

const (
	// heartbeat is how long a status that does not change is not written again. Agents
	// tick each at its own time, so that their heartbeats are spread.
	heartbeat = 60 * time.Second
	// minInterval is the least time between two writes. With each that fails it is
	// doubled, up to a heartbeat.
	minInterval = 10 * time.Second
)

// Publisher keeps one GPUNode as it should be. It is not safe for concurrent use.
type Publisher struct {
	node   string
	writer Writer
	// written is the last status that was, without its heartbeat, nil before the first.
	written *v1alpha1.GPUNodeStatus
	// tried is when it was written or tried last, and pause how long nothing is then.
	tried, pause time.Duration
}

// New keeps the GPUNode of that node.
func New(node string, writer Writer) *Publisher {
	return &Publisher{node: node, writer: writer}
}

// Publish is told what the status should be at each tick, and writes it if it is time. A
// change that comes too early, or that could not be written, is written later, as it
// is then.
func (p *Publisher) Publish(ctx context.Context, now verdict.Instant, status v1alpha1.GPUNodeStatus) error {
	status.LastHeartbeat = metav1.Time{}
	since := now.Elapsed - p.tried
	if since < p.pause || p.written != nil && since < heartbeat && equality.Semantic.DeepEqual(*p.written, status) {
		return nil
	}
	p.tried = now.Elapsed
	dated := status
	dated.LastHeartbeat = metav1.NewTime(now.Wall)
	if err := p.writer.Write(ctx, p.node, dated); err != nil {
		// What the API server has is not known now.
		p.written = nil
		p.pause = min(max(2*p.pause, minInterval), heartbeat)
		return fmt.Errorf("writing GPUNode %s: %w", p.node, err)
	}
	p.written, p.pause = status.DeepCopy(), minInterval
	return nil
}
