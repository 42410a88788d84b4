package v1beta1

// SecretRef is a Secret in the namespace of the object that names it.
type SecretRef struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
}

// SecretKeyRef is one key of a Secret in the namespace of the object that names it.
type SecretKeyRef struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Key in the Secret's data. Unset, the one that the field's description names.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._0-9A-Za-z]+$`
	Key string `json:"key,omitempty"`
}

// ClusterRef is an EtcdCluster in the namespace of the object that names it.
type ClusterRef struct {
	// Name of the EtcdCluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=48
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
}

// SnapshotRef is an EtcdSnapshot in the namespace of the object that names it.
type SnapshotRef struct {
	// Name of the EtcdSnapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
}

// Docs is where the pages are that messages name.
const Docs = "https://github.com/quorate-dev/quorate/blob/main/docs/"
