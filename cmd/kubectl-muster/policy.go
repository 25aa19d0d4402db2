package main

import (
	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/policyfiles"
)

func newPolicy() *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Test, evaluate and lint policies in files, as the webhook would, or write some for the API server",
		Long: `Test, evaluate and lint policies in files, as the webhook would, or write those of
Muster's own that need no webhook.

Policies are files of Rego (.rego), AdmissionPolicies and Gatekeeper's templates with
their constraints (.yaml, .yml, .json), and folders of them. No cluster is asked.

The exit status is 0 if all is well, 2 if a test failed, an object would be refused
or a policy does not compile, 1 if that could not be found out.`,
	}
	command.AddCommand(newPolicyTest(), newPolicyEval(), newPolicyLint(), newPolicyStatic())
	return command
}

func newPolicyTest() *cobra.Command {
	return &cobra.Command{
		Use: "test PATH...", Short: "Run the tests of policies: rules whose names begin with test_", Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, paths []string) error {
			return policyfiles.Test(command.Context(), command.OutOrStdout(), paths)
		},
	}
}

func newPolicyLint() *cobra.Command {
	return &cobra.Command{
		Use: "lint PATH...", Short: "Find policies that do not compile, and what others miss", Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, paths []string) error {
			return policyfiles.Lint(command.OutOrStdout(), paths)
		},
	}
}

func newPolicyStatic() *cobra.Command {
	var config string
	command := &cobra.Command{
		Use: "static", Short: "Write those of Muster's own policies that the API server can ask itself", Args: cobra.NoArgs,
		Long: `Write those of Muster's own policies that the API server can ask itself, as
ValidatingAdmissionPolicies (CEL): for clusters that want no webhook. They know of an object
what it says itself, and nothing of runtimes, owners, queues and nodes. They need an API
server of version 1.35 or newer.`,
		Example: `  # Those of manifests/static, with the levels, parameters and exemptions of a configuration
  kubectl muster policy static --config webhook.yaml | kubectl apply -f -`,
		RunE: func(command *cobra.Command, _ []string) error {
			return policyfiles.Static(command.OutOrStdout(), config)
		},
	}
	command.Flags().StringVar(&config, "config", "", "file with the webhook's configuration; without it all are at their default levels")
	return command
}

func newPolicyEval() *cobra.Command {
	var request policyfiles.Request
	command := &cobra.Command{
		Use: "eval -f FILE [PATH...]", Short: "Say what policies would say of objects",
		Example: `  # What Muster's own policies say of a job
  kubectl muster policy eval --library -f job.yaml

  # What one's own policies say of a change
  kubectl muster policy eval policies/ -f after.yaml --old before.yaml`,
		RunE: func(command *cobra.Command, paths []string) error {
			return policyfiles.Eval(command.Context(), command.OutOrStdout(), paths, request)
		},
	}
	flags := command.Flags()
	flags.StringSliceVarP(&request.Objects, "filename", "f", nil, "files with the objects; - is the standard input. Training runtimes in them are those that TrainJobs name, ResourceClaims and ResourceClaimTemplates those that pods name")
	flags.StringVar(&request.Old, "old", "", "file with the objects as they were before; those in it are updated, the others created")
	flags.StringVar(&request.Inventory, "inventory", "", "file with data.inventory, one document with kind: Inventory")
	flags.BoolVar(&request.Library, "library", false, "ask Muster's own policies too, at their default levels")
	flags.StringVar(&request.User, "as", "", "user who makes the request")
	flags.StringSliceVar(&request.Groups, "as-group", nil, "groups of the user")
	if err := command.MarkFlagRequired("filename"); err != nil {
		panic(err)
	}
	return command
}
