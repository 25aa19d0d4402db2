package integration

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/testcluster"
)

func init() {
	scenarios = append(scenarios, claimScenarios...)
}

var claimScenarios = []scenario{
	{name: "a gang that shares devices runs whole on the node that has them", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 8)
		e.devices(t, "node-1", "one", "two")
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "links"}, Spec: resourceapi.ResourceClaimSpec{
			Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
				Name: "links", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "link", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 2},
			}}},
		}}
		e.Create(t, claim)
		pods := e.group("gang", "team", 3, 2)
		for _, pod := range pods {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "links", ResourceClaimName: &claim.Name}}
			e.Create(t, pod)
		}
		e.onNode(t, pods...)
		for _, pod := range pods {
			if have, err := e.now(t.Context(), pod); err != nil || have.Spec.NodeName != "node-1" {
				t.Errorf("%s is on %q (%v), and the devices on node-1", pod.Name, have.Spec.NodeName, err)
			}
		}
	}},
	{name: "a gang that shares a volume runs whole once the volume is provisioned for its first pod", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 16)
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, Provisioner: "nfs.example.com", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
		e.Create(t, class)
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Resources: corev1.VolumeResourceRequirements{Requests: size},
		}}
		e.Create(t, claim)
		pods := e.group("gang", "team", 4, 4)
		for _, pod := range pods {
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}}
			e.Create(t, pod)
		}
		// The provisioner and the volume controller.
		testcluster.Eventually(t, "a node to be selected for the volume", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
				return err
			}
			if claim.Annotations[volume.AnnSelectedNode] == "" {
				return errors.New("none is")
			}
			return nil
		})
		e.waits(t, pods...)
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data-" + e.namespace}, Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class.Name, AccessModes: claim.Spec.AccessModes, Capacity: size,
			ClaimRef:               &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/"}},
		}}
		e.Create(t, pv)
		testcluster.Eventually(t, "the claim to be bound", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
				return err
			}
			claim.Spec.VolumeName = pv.Name
			claim.Annotations[volume.AnnBindCompleted] = "yes"
			return e.Client.Update(ctx, claim)
		})
		e.onNode(t, pods...)
	}},
	{name: "a job that waits for a claim starts when the claim comes, though nothing else happens", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "nfs.example.com", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
		e.Create(t, class)
		pod := e.pod("waiter", 4, queued("team"))
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "late"}}}}
		e.Create(t, pod)
		e.podEvent(t, pod, "Pending", `persistentvolumeclaim "late" not found`)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "late"}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
		e.Create(t, claim)
		testcluster.Eventually(t, "a node to be selected for the volume", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
				return err
			}
			if claim.Annotations[volume.AnnSelectedNode] == "" {
				return errors.New("none is")
			}
			return nil
		})
	}},
}

// devices makes links of a node known.
func (e *env) devices(t *testing.T, node string, names ...string) {
	t.Helper()
	e.Create(t, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "link"}})
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-links"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "link.example.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
	}}
	for _, name := range names {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name})
	}
	e.Create(t, slice)
}
