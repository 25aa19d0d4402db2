// Package kustomization renders kustomizations that are not on disk: those that are
// embedded in a program, and those that are laid over a module's. Start from Build.
package kustomization
