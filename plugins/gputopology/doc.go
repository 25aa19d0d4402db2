// Package gputopology is the scheduler plugin that ranks nodes for pods that no
// job of Muster places: pods with GPUs by the rule by which gangs are packed, so
// that what is left over is of use to others, and pods without GPUs away from
// nodes with GPUs.
//
// With the islands of nodes enforced by annotation it chooses the GPUs of every pod
// when it is reserved, those of jobs too, and writes them on it when it is bound. It binds
// all pods, some at a time.
//
// It refuses no node, and ranks none for pods of jobs, whose nodes are planned. Of more than a hundred nodes the scheduler looks only at a part for
// each pod, and the plugin ranks those. Start from Plugin.
package gputopology
