package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/internal/simulator"
)

// GPUAgent is the component that is the GPU agent of a node.
func GPUAgent(node string) string { return componentGPUAgent + "-" + node }

// beginGPUAgents lists how to begin the agents of the first nodes.
func (b *bringUp) beginGPUAgents() []func(context.Context) error {
	var begin []func(context.Context) error
	for i := range b.options.GPUAgents {
		node := simulator.NodeName(i)
		p, err := b.gpuAgentProgram(node)
		begin = append(begin, func(ctx context.Context) error {
			if err != nil {
				return err
			}
			if err := b.identifyGPUAgent(ctx, node); err != nil {
				return err
			}
			return b.start(ctx, p)
		})
	}
	return begin
}

// identifyGPUAgent gives an agent a token of its service account for its node, as that
// of a pod is for the node that it is on.
func (b *bringUp) identifyGPUAgent(ctx context.Context, node string) error {
	object, err := b.cluster.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading node %s: %w", node, err)
	}
	token, err := b.cluster.serviceAccountToken(ctx, musterNamespace, componentGPUAgent,
		&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: object.UID})
	if err != nil {
		return err
	}
	return writeKubeconfig(b.identity(GPUAgent(node)), b.server, b.ca.pem, componentGPUAgent, token)
}

func (s *setup) gpuAgentProgram(node string) (program, error) {
	name := GPUAgent(node)
	health, metrics := s.ports.next(), s.ports.next()
	base := map[string]any{"apiVersion": "config.muster.dev/v1alpha1", "kind": "GPUAgentConfiguration"}
	if s.options.GPUAgentConfig != "" {
		content, err := os.ReadFile(s.options.GPUAgentConfig)
		if err != nil {
			return program{}, fmt.Errorf("reading the GPU agents' configuration: %w", err)
		}
		base = nil
		if err := sigsyaml.UnmarshalStrict(content, &base); err != nil {
			return program{}, fmt.Errorf("reading the GPU agents' configuration %s: %w", s.options.GPUAgentConfig, err)
		}
	}
	path := s.config(name + ".yaml")
	folder := filepath.Join(nodesFolder, node)
	err := writeConfiguration(path, mergeFields(base, map[string]any{
		"clientConnection": map[string]any{"kubeconfig": s.identity(name)},
		"nodeName":         node,
		"kubelet":          map[string]any{"socket": filepath.Join(folder, simulator.KubeletSocket)},
		"reader":           map[string]any{"kind": "scripted", "script": filepath.Join(folder, simulator.GPUScript)},
		"health":           map[string]any{"bindAddress": loopback(health)},
		"metrics":          map[string]any{"bindAddress": loopback(metrics)},
	}))
	if err != nil {
		return program{}, err
	}
	return program{
		name: name, path: s.options.binary(binaryGPUAgent), args: []string{"--config=" + path},
		ports: map[string]int{"health": health, "metrics": metrics},
		ready: httpReady("http://" + loopback(health) + "/readyz"),
		wait:  60 * time.Second, grace: 3 * time.Second,
	}, nil
}
