// Package holders says which container holds which GPU, from what the kubelet lists.
//
// The kubelet knows devices by the ids that their plugins gave them, in several forms,
// and devices of resource claims by driver, pool and name. A Client reads its lists
// over its socket; Allocations makes them into one entry for each device and pod, so
// that a device is counted once however often it is listed; a Book follows them from
// list to list, and frees nothing because one list lacks it; Resolve finds the device.
//
// The package decides nothing about what a holder does with its GPU. Start from Client
// and Book.
package holders
