package main

import (
	"context"
	"time"

	growth "github.com/kubernetes-csi/external-resizer/v2/pkg/controller"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const (
	selectedNode = "volume.kubernetes.io/selected-node" // of a claim: where its pod will be
	nodeOfVolume = "node"                               // of a volume: where its disk is
)

func backOff() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 10*time.Second)
}

// provision makes and removes the volumes of one node, for claims whose pods the scheduler puts there. Every node does
// so for itself, so there is no leader election.
func provision(ctx context.Context, client kubernetes.Interface, from snapshotter) error {
	controller.NewProvisionController(ctx, client, driver, provisioner{from.node, from},
		controller.LeaderElection(false), controller.RateLimiter(backOff()), controller.CreateProvisionedPVInterval(time.Second),
	).Run(ctx)
	return ctx.Err()
}

type provisioner struct {
	node string
	from snapshotter
}

// ShouldProvision is asked before the claim's class is looked at.
func (p provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[selectedNode] == p.node
}

// ShouldDelete is asked before it is known whether the volume is to go.
func (p provisioner) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	return volume.Spec.CSI != nil && volume.Spec.CSI.VolumeAttributes[nodeOfVolume] == p.node
}

func (p provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	wanted := o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]
	from, err := p.from.source(ctx, o.PVC)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	var bytes int64
	if from != "" {
		bytes, err = diskOf(o.PVName).begin(from, wanted.Value())
	} else {
		bytes, err = diskOf(o.PVName).create(wanted.Value())
	}
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)},
			NodeAffinity:                  onlyOn(p.node),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: o.PVName, FSType: "xfs",
				VolumeAttributes: map[string]string{nodeOfVolume: p.node},
			}},
		},
	}, controller.ProvisioningFinished, nil
}

func (provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	return diskOf(volume.Spec.CSI.VolumeHandle).remove()
}

func onlyOn(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}},
	}}}}
}

// answerGrowth runs the controller that clouds run too, external-resizer: it writes the new size to the volume and to
// the claim's status, and leaves the rest to the kubelet.
func answerGrowth(ctx context.Context, client kubernetes.Interface) error {
	const resync = 10 * time.Minute
	shared := informers.NewSharedInformerFactory(client, resync)
	c := growth.NewResizeController(driver, resizer{}, client, resync, shared, backOff(), false, 10*time.Second)
	shared.Start(ctx.Done())
	c.Run(2, ctx, nil)
	return ctx.Err()
}

// resizer is the half of an expansion that a cloud does from outside the node. Here that half is nothing: the file
// grows where it is.
type resizer struct{}

func (resizer) Name() string { return driver }

// DriverSupportsControlPlaneExpansion: claims go through the same states as with a cloud's disks.
func (resizer) DriverSupportsControlPlaneExpansion() bool { return true }

func (resizer) CanSupport(volume *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) bool {
	return volume.Spec.CSI != nil && volume.Spec.CSI.Driver == driver
}

func (resizer) Resize(_ *corev1.PersistentVolume, wanted resource.Quantity) (resource.Quantity, bool, error) {
	return wanted, true, nil
}
