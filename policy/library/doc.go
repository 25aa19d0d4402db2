// Package library is the policies that come with Muster, in Rego, each with its
// tests beside it.
//
// Each is off, warns or refuses, as a configuration says; its own default is in its
// metadata, with the kinds it is for and its parameters. They read input.workload,
// so that GPUs and images count wherever they are said. Start from Policies.
package library
