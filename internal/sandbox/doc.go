// Package sandbox runs a real Kubernetes control plane on loopback, without
// containers: etcd, kube-apiserver, kube-controller-manager, the JobSet and
// Kubeflow Trainer controllers, Muster's own programs and simulated GPU nodes,
// each a separate process built from its Go module.
//
// A detached supervisor owns the processes; Up starts it and returns when the
// cluster is ready, Open finds a running one again, and Down leaves no process
// behind. Start from Up and Sandbox. The supervisor restarts nothing by
// itself: a component that dies stays dead until somebody asks, so that faults
// can be studied. It serves tests and demonstrations, never production: etcd
// does not sync to disk, and tokens lie in files.
package sandbox
