package simulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/muster-gpu/muster/api/gpu"
)

// devicePrefix begins the name of each GPU as a device, before its index.
const devicePrefix = "gpu-"

// newDeviceClass has all GPUs, which are also what pods get that ask for the
// resource.
func newDeviceClass() *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: gpu.Driver}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q && device.attributes[%q].type == \"gpu\"", gpu.Driver, gpu.Driver),
		}}},
		ExtendedResourceName: new(string(GPUResource)),
	}}
}

// newSlices has the GPUs of a node as NVIDIA's driver publishes them.
func newSlices(node *corev1.Node, product string, gpus int) (found []*resourceapi.ResourceSlice) {
	devices := make([]resourceapi.Device, gpus)
	for i := range devices {
		devices[i] = newDevice(node.Name, product, i)
	}
	for chunk := range slices.Chunk(devices, resourceapi.ResourceSliceMaxDevices) {
		found = append(found, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name:            fmt.Sprintf("%s-%s-%d", node.Name, gpu.Driver, len(found)),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: gpu.Driver, NodeName: &node.Name, Devices: chunk,
				Pool: resourceapi.ResourcePool{Name: node.Name, Generation: 1},
			},
		})
	}
	for _, slice := range found {
		slice.Spec.Pool.ResourceSliceCount = int64(len(found))
	}
	return found
}

// newDevice is one GPU. Each two cards share a PCIe root; modules (SXM) have their own.
func newDevice(node, product string, index int) resourceapi.Device {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	return resourceapi.Device{Name: deviceName(index), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type":                            text("gpu"),
		"uuid":                            text(uuidOf(node, index)),
		"productName":                     text(strings.ReplaceAll(product, "-", " ")),
		"resource.kubernetes.io/pciBusID": text(fmt.Sprintf("%04x:01:00.0", index)),
		"resource.kubernetes.io/pcieRoot": text(pcieRoot(product, index)),
	}}
}

// deviceName is the name of a GPU as a device.
func deviceName(index int) string { return devicePrefix + strconv.Itoa(index) }

// uuidOf is the UUID of a GPU.
func uuidOf(node string, index int) string { return fmt.Sprintf("GPU-%s-%d", node, index) }

// isModule says that GPUs of that product are modules (SXM), and not cards.
func isModule(product string) bool {
	return strings.Contains(product, "SXM") || strings.Contains(product, "HBM")
}

// pcieRoot is the root complex below which a GPU sits: two cards share one.
func pcieRoot(product string, index int) string {
	if !isModule(product) {
		index /= 2
	}
	return fmt.Sprintf("pci%04x:00", index)
}

// publishDevices creates the slices of a new node.
func (s *simulator) publishDevices(ctx context.Context, node *corev1.Node) error {
	for _, slice := range newSlices(node, node.Labels[productLabel], s.options.GPUsPerNode) {
		_, err := s.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("publishing the GPUs of node %s: %w", node.Name, err)
		}
	}
	return nil
}

// errUnprepared: the kubelet would try again until the scheduler has done its part.
var errUnprepared = errors.New("is not allocated, or not for the pod")

// claimed are the indices of the GPUs that the pod alone has through claims, from the
// lowest. Those of a claim that others may name too are nobody's alone.
func (s *simulator) claimed(ctx context.Context, pod *corev1.Pod) (indices []int, err error) {
	for i := range pod.Spec.ResourceClaims {
		name, alone, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, fmt.Errorf("a claim of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if name == nil {
			continue
		}
		found, err := s.devicesOf(ctx, pod, *name)
		if err != nil {
			return nil, err
		}
		if alone {
			indices = append(indices, found...)
		}
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		found, err := s.devicesOf(ctx, pod, status.ResourceClaimName)
		if err != nil {
			return nil, err
		}
		indices = append(indices, found...)
	}
	slices.Sort(indices)
	return indices, nil
}

// devicesOf are the indices of the GPUs that a claim of the pod has.
func (s *simulator) devicesOf(ctx context.Context, pod *corev1.Pod, name string) (indices []int, err error) {
	claim, err := s.client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading ResourceClaim %s/%s: %w", pod.Namespace, name, err)
	}
	if claim.Status.Allocation == nil || !resourceclaim.IsReservedForPod(pod, claim, false) {
		return nil, fmt.Errorf("ResourceClaim %s/%s of pod %s: %w", pod.Namespace, name, pod.Name, errUnprepared)
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		index, _ := strings.CutPrefix(result.Device, devicePrefix)
		// Other devices, and parts of GPUs, have no index.
		if i, err := strconv.Atoi(index); err == nil && result.Driver == gpu.Driver {
			indices = append(indices, i)
		}
	}
	return indices, nil
}
