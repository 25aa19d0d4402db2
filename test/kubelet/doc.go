// Package kubelet tests the GPU agent beside a real kubelet, with containerd and runc,
// real pods and a device plugin: what is read of the kubelet's socket is compared with
// what the containers themselves were given. It needs root, and Debian's packages
// containerd, runc and containernetworking-plugins: run "make test-kubelet".
package kubelet
