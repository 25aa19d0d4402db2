// Package gpudevices is the scheduler plugin that gives pods devices (dynamic resource
// allocation) in place of DynamicResources: it is that plugin, and has it look first
// at those GPUs of each node that are best given to the pod.
//
// DynamicResources takes the first devices that suit, in the order of the
// ResourceSlices, and asks nobody. So it is shown the slices with their devices in
// another order, that of placement.DeviceOrder, which is also that of plans. Which
// devices suit is still its decision: selectors, constraints and taints are heeded, and
// a better set that they rule out is passed over. Start from Plugin.
package gpudevices
