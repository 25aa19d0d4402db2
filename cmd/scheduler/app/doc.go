// Package app builds Muster's scheduler: a kube-scheduler with its default
// plugins, without its preemption of single pods, and with the admission cycle
// and the gang plugin in it. It is wiring only. Start from New.
package app
