package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/internal/show"
	"github.com/muster-gpu/muster/internal/version"
)

// connection says which cluster is meant, as with kubectl.
type connection struct{ *genericclioptions.ConfigFlags }

func newConnection() *connection {
	return &connection{genericclioptions.NewConfigFlags(true)}
}

// namespace is the one that is named, or that of the context.
func (c *connection) namespace() (string, error) {
	namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}

func (c *connection) config() (*rest.Config, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-muster/" + version.String()
	// One command asks a few times; pages should not wait for each other.
	config.QPS, config.Burst = 50, 100
	return config, nil
}

func (c *connection) cluster() (*show.Cluster, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return show.Connect(config)
}

// outputFlags are -o and --no-headers.
type outputFlags struct {
	format    string
	noHeaders bool
}

func (f *outputFlags) add(command *cobra.Command) {
	command.Flags().StringVarP(&f.format, "output", "o", "", "output format: wide, json, yaml or name; a table without it")
	command.Flags().BoolVar(&f.noHeaders, "no-headers", false, "leave out the headers of tables")
	complete(command, "output", func(context.Context, *cobra.Command) ([]string, error) { return show.Formats, nil })
}

// output is where the command writes to.
func (f *outputFlags) output(command *cobra.Command) (show.Output, error) {
	out := command.OutOrStdout()
	o := show.Output{Out: out, Format: f.format, NoHeaders: f.noHeaders, Color: printers.AllowsColorOutput(out)}
	return o, o.Validate()
}

// namespaceFlag is -A beside kubectl's -n.
type namespaceFlag struct{ all bool }

func (f *namespaceFlag) add(command *cobra.Command) {
	command.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "of all namespaces")
}

// of is the namespace that is meant, "" for all.
func (f *namespaceFlag) of(c *connection) (string, error) {
	if f.all {
		return "", nil
	}
	return c.namespace()
}
