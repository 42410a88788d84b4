package v1beta1

import corev1 "k8s.io/api/core/v1"

// IDPolicy says who chooses the numbers of users and groups that are not set.
// +kubebuilder:validation:Enum=Fixed;Platform
type IDPolicy string

const (
	// IDsFixed are 10001, the same on every node and in every cluster.
	IDsFixed IDPolicy = "Fixed"
	// IDsByPlatform are left unset, for an admission controller to set.
	IDsByPlatform IDPolicy = "Platform"
)

// PodSecurity says as which user the programs in pods run. Whatever is set here, they fit the Pod Security Standard
// `restricted`: no root, no privileges, no capabilities, a root file system that can't be written to.
type PodSecurity struct {
	// IDPolicy says who chooses runAsUser, runAsGroup and fsGroup where they are not set. Fixed (the default): each is
	// 10001. Platform: they stay unset in pods, for an admission controller that sets them, as OpenShift's does with
	// the SCC restricted-v2; where none does, no pod starts.
	// +optional
	IDPolicy IDPolicy `json:"idPolicy,omitempty"`

	// RunAsUser is the user ID of every program. Root, 0, is refused. Unset, it is as idPolicy says.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// RunAsGroup is its group ID. Unset, it is as idPolicy says.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`

	// FSGroup is the ID of the group that volumes are given to. Unset, it is as idPolicy says.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	FSGroup *int64 `json:"fsGroup,omitempty"`

	// FSGroupChangePolicy says when the kubelet gives the files of a volume to fsGroup: OnRootMismatch, the default, or
	// Always, each time that a pod starts. While you give members another user, set Always: only its owner can read a
	// file of etcd's.
	// +optional
	// +kubebuilder:validation:Enum=OnRootMismatch;Always
	FSGroupChangePolicy corev1.PodFSGroupChangePolicy `json:"fsGroupChangePolicy,omitempty"`
}
