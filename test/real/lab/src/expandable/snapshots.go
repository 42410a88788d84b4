package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// A VolumeSnapshot is a copy of a volume's disk, made while its file system takes no writes: what a machine would find
// there after it lost its power at that moment. Copies are in a folder that all nodes share. There are no
// VolumeSnapshotContents and no classes: nothing here reads them.

var snapshotKind = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}

// snapshotter takes those of the volumes on its node.
type snapshotter struct {
	client    kubernetes.Interface
	snapshots dynamic.NamespaceableResourceInterface
	folder    string
	node      string
}

// run looks every second: a lab has few of them, and a test waits for each.
func (s snapshotter) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.look(ctx); err != nil {
			klog.ErrorS(err, "VolumeSnapshots were not looked at")
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return ctx.Err()
}

func (s snapshotter) look(ctx context.Context) error {
	list, err := s.snapshots.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the kind is not there yet
	}
	if err != nil {
		return err
	}
	var failed error
	for i := range list.Items {
		failed = errors.Join(failed, s.take(ctx, &list.Items[i]))
	}
	return failed
}

// take makes one ready, if it is of a volume on this node.
func (s snapshotter) take(ctx context.Context, o *unstructured.Unstructured) error {
	if ready, _, _ := unstructured.NestedBool(o.Object, "status", "readyToUse"); ready {
		return nil
	}
	name, _, _ := unstructured.NestedString(o.Object, "spec", "source", "persistentVolumeClaimName")
	claim, err := s.client.CoreV1().PersistentVolumeClaims(o.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	volume, err := s.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || volume.Spec.CSI == nil || volume.Spec.CSI.VolumeAttributes[nodeOfVolume] != s.node {
		return err
	}
	size := volume.Spec.Capacity[corev1.ResourceStorage]
	if err := diskOf(volume.Spec.CSI.VolumeHandle).copyTo(s.copyOf(string(o.GetUID()))); err != nil {
		return err
	}
	o.Object["status"] = map[string]any{"readyToUse": true, "restoreSize": size.String(),
		"creationTime": time.Now().UTC().Format(time.RFC3339)}
	_, err = s.snapshots.Namespace(o.GetNamespace()).UpdateStatus(ctx, o, metav1.UpdateOptions{})
	return err
}

func (s snapshotter) copyOf(uid string) string { return filepath.Join(s.folder, uid+".img") }

// source is the file that a claim's volume begins with; empty for none.
func (s snapshotter) source(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	from := claim.Spec.DataSource
	if from == nil {
		return "", nil
	}
	if from.Kind != "VolumeSnapshot" {
		return "", fmt.Errorf("%s/%s: a volume can't begin with a %s", claim.Namespace, claim.Name, from.Kind)
	}
	o, err := s.snapshots.Namespace(claim.Namespace).Get(ctx, from.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if ready, _, _ := unstructured.NestedBool(o.Object, "status", "readyToUse"); !ready {
		return "", fmt.Errorf("VolumeSnapshot %s/%s is not ready", o.GetNamespace(), o.GetName())
	}
	return s.copyOf(string(o.GetUID())), nil
}

// copyTo copies the disk as it is at one moment.
func (d disk) copyTo(target string) error {
	if _, err := os.Stat(target); err == nil {
		return nil // of an earlier try, whose answer was lost
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	mounted, err := d.mountedAt()
	if err != nil {
		return err
	}
	if mounted != "" {
		if _, err := command("fsfreeze", "--freeze", mounted); err != nil {
			return err
		}
	}
	_, err = command("cp", "--sparse=always", d.image, target+".new")
	if mounted != "" {
		_, thawed := command("fsfreeze", "--unfreeze", mounted)
		err = errors.Join(err, thawed)
	}
	if err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}

// mountedAt is one folder at which the disk is mounted; empty for none.
func (d disk) mountedAt() (string, error) {
	device, err := command("losetup", "--noheadings", "--output", "NAME", "--associated", d.image)
	if err != nil || device == "" {
		return "", err
	}
	return command("findmnt", "--noheadings", "--first-only", "--output", "TARGET", "--source", device)
}

// begin makes the disk from a copy, as large as is wanted, and returns its size.
func (d disk) begin(from string, bytes int64) (int64, error) {
	info, err := os.Stat(d.image)
	if err == nil {
		return info.Size(), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Dir(d.image), 0o700); err != nil {
		return 0, err
	}
	fresh := d.image + ".new"
	if _, err := command("cp", "--sparse=always", from, fresh); err != nil {
		return 0, err
	}
	if info, err = os.Stat(fresh); err != nil {
		return 0, err
	}
	bytes = max(bytes, info.Size())
	if err := os.Truncate(fresh, bytes); err != nil {
		return 0, err
	}
	return bytes, os.Rename(fresh, d.image)
}
