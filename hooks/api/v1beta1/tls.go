package v1beta1

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TLSMode says where the certificates of a cluster come from.
// +kubebuilder:validation:Enum=Auto;Secrets;CertManager;Disabled
type TLSMode string

const (
	// TLSAuto makes a certificate authority for the cluster and renews everything by itself.
	TLSAuto TLSMode = "Auto"
	// TLSSecrets takes certificates from Secrets that others keep.
	TLSSecrets TLSMode = "Secrets"
	// TLSCertManager asks cert-manager for them.
	TLSCertManager TLSMode = "CertManager"
	// TLSDisabled runs etcd in plain text, for everyone who can reach it.
	TLSDisabled TLSMode = "Disabled"
)

// ClientAuth says whether members ask clients for a certificate.
// +kubebuilder:validation:Enum=Required;None
type ClientAuth string

const (
	// ClientAuthRequired refuses clients without a certificate of a trusted authority.
	ClientAuthRequired ClientAuth = "Required"
	// ClientAuthNone asks clients for no certificate: they log in with a password.
	ClientAuthNone ClientAuth = "None"
)

// TLSSpec says how clients and members prove who they are, and how what they say is kept secret.
//
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode || oldSelf.mode == 'Disabled'",message="tls.mode can only be changed from Disabled on a live cluster: members that trust different authorities, or none, can't hear each other; create a new EtcdCluster and move the data (https://github.com/quorate-dev/quorate/blob/main/docs/how-to/certificates.md)"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode || oldSelf.mode != 'Disabled' || (has(self.allowPlaintextClients) && self.allowPlaintextClients)",message="switching TLS on would lock all clients out at once: set tls.allowPlaintextClients to true with it, switch the applications, and remove it again (https://github.com/quorate-dev/quorate/blob/main/docs/how-to/certificates.md)"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Disabled' || !has(self.allowPlaintextClients) || !self.allowPlaintextClients",message="with tls.mode Disabled all clients speak plain text; remove tls.allowPlaintextClients"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Secrets' || has(self.secrets)",message="tls.mode Secrets needs tls.secrets: the names of the Secrets with the certificates"
// +kubebuilder:validation:XValidation:rule="self.mode != 'CertManager' || has(self.certManager)",message="tls.mode CertManager needs tls.certManager.issuerRef"
// +kubebuilder:validation:XValidation:rule="!has(self.cipherSuites) || size(self.cipherSuites) == 0 || !has(self.minVersion) || self.minVersion != 'TLS1.3'",message="tls.cipherSuites can't be used with minVersion TLS1.3, whose suites can't be chosen; remove one of the two"
// +kubebuilder:validation:XValidation:rule="!has(self.clientCRLSecretRef) || (self.mode != 'Disabled' && self.clientAuth != 'None')",message="tls.clientCRLSecretRef needs clients with certificates: remove it where tls.mode is Disabled or tls.clientAuth is None"
type TLSSpec struct {
	// Mode is Auto (Quorate makes and renews all certificates), Secrets (yours), CertManager (through an issuer of
	// yours) or Disabled (plain text). It can be changed later from Disabled to another one, and in no other way.
	// +optional
	// +default="Auto"
	Mode TLSMode `json:"mode,omitempty"`

	// ClientAuth is Required, or None: members then ask clients for no certificate, and these log in with a password.
	// None needs auth, and takes effect once auth is on in etcd. etcd has nothing between the two:
	// once it has authorities for clients, it requires a certificate of all.
	// +optional
	// +default="Required"
	ClientAuth ClientAuth `json:"clientAuth,omitempty"`

	// AllowPlaintextClients lets clients speak plain text beside TLS, without any certificate. Set it only while you
	// move applications from one to the other.
	// +optional
	AllowPlaintextClients bool `json:"allowPlaintextClients,omitempty"`

	// Auto is about the certificates of the mode Auto.
	// +optional
	Auto AutoTLS `json:"auto,omitzero"`

	// Secrets are those of the mode Secrets. Each has tls.crt, tls.key, ca.crt and the label etcd.quorate.dev/cluster:
	// <name of this EtcdCluster>.
	// +optional
	Secrets *SecretsTLS `json:"secrets,omitempty"`

	// CertManager is about the mode CertManager.
	// +optional
	CertManager *CertManagerTLS `json:"certManager,omitempty"`

	// ClientCRLSecretRef names a Secret with a list of revoked certificates (an X.509 CRL, PEM or DER) under ca.crl and
	// the label etcd.quorate.dev/cluster. Members let no client in whose certificate has a number of the list. A new
	// list needs no restart; connections that are open stay. One that can't be used changes nothing.
	// +optional
	ClientCRLSecretRef *SecretRef `json:"clientCRLSecretRef,omitempty"`

	// ExtraSANs are further names (DNS names or IP addresses) in the servers' certificate, such as that of a load
	// balancer. Modes Auto and CertManager; a change needs no restart.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:Pattern=`^([*][.])?[-_.:0-9A-Za-z]+$`
	ExtraSANs []string `json:"extraSANs,omitempty"`

	// MinVersion of TLS that members accept: TLS1.2 or TLS1.3.
	// +optional
	// +default="TLS1.2"
	// +kubebuilder:validation:Enum=TLS1.2;TLS1.3
	MinVersion string `json:"minVersion,omitempty"`

	// CipherSuites that members accept with TLS 1.2, by their IANA names, such as
	// TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. Unset, those that Go considers safe.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern="^TLS_[A-Z0-9_]{1,60}$"
	CipherSuites []string `json:"cipherSuites,omitempty"`
}

// AutoTLS is about the certificates that Quorate makes.
//
// +kubebuilder:validation:XValidation:rule="duration(self.leafDuration) >= duration('1m')",message="tls.auto.leafDuration must be at least 1m; days or more outside of tests"
// +kubebuilder:validation:XValidation:rule="duration(self.caDuration) >= duration(self.leafDuration) + duration(self.leafDuration)",message="tls.auto.caDuration must be at least twice leafDuration"
type AutoTLS struct {
	// LeafDuration is how long a certificate of a member or client is valid: 90 days by default. It is renewed after
	// two thirds of that, without a restart.
	// +optional
	// +default="2160h"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="tls.auto.leafDuration must be more than 0s"
	LeafDuration metav1.Duration `json:"leafDuration,omitzero"`

	// CADuration is how long the certificate authority is valid: ten years by default. After two thirds of that Quorate
	// brings a new one in beside it, and restarts the members one at a time to trust both.
	// +optional
	// +default="87600h"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="tls.auto.caDuration must be more than 0s"
	CADuration metav1.Duration `json:"caDuration,omitzero"`
}

// SecretsTLS names Secrets of the cluster's namespace. Each has tls.crt, tls.key, ca.crt and the label
// etcd.quorate.dev/cluster.
type SecretsTLS struct {
	// ServerSecretRef holds the certificate that members show to clients: for servers and clients, without a common
	// name, with the names *.<name>-peers.<namespace>.svc and <name>.<namespace>.svc, and localhost if etcdctl is used
	// inside the pods. spec.memberService needs *.<domain> too, spec.hostNetwork the members' addresses.
	// +required
	ServerSecretRef SecretRef `json:"serverSecretRef"`

	// PeerSecretRef holds the certificate that members show to each other: for servers and clients, with the name
	// *.<name>-peers.<namespace>.svc and the common name <name>:peers, which makes it a peer's. spec.hostNetwork needs
	// the members' addresses too.
	// +required
	PeerSecretRef SecretRef `json:"peerSecretRef"`

	// OperatorSecretRef holds the certificate that Quorate shows to the members: for clients, with the common name
	// root.
	// +required
	OperatorSecretRef SecretRef `json:"operatorSecretRef"`
}

// CertManagerTLS is about the certificates that cert-manager makes.
type CertManagerTLS struct {
	// IssuerRef is the issuer that signs all of the cluster's certificates. It must sign with a private authority:
	// everyone who has a certificate of it is let in.
	IssuerRef IssuerRef `json:"issuerRef"`

	// Duration of the certificates, such as 2160h; unset, cert-manager's own default.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="tls.certManager.duration must be at least 1h: cert-manager issues none for less"
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// IssuerRef names an issuer of cert-manager.
type IssuerRef struct {
	// Name of the issuer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Kind is Issuer (of the cluster's namespace). ClusterIssuer, or a kind of another group, needs an installation
	// that allows it (--shared-issuers).
	// +optional
	// +default="Issuer"
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z]*$`
	Kind string `json:"kind,omitempty"`

	// Group of the kind.
	// +optional
	// +default="cert-manager.io"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	Group string `json:"group,omitempty"`
}

// NetworkPolicyMode says who makes a NetworkPolicy for the members.
// +kubebuilder:validation:Enum=Managed;Disabled
type NetworkPolicyMode string

const (
	// NetworkPolicyManaged has Quorate make one.
	NetworkPolicyManaged NetworkPolicyMode = "Managed"
	// NetworkPolicyDisabled has Quorate make none.
	NetworkPolicyDisabled NetworkPolicyMode = "Disabled"
)

// NetworkPolicySpec says who may open connections to the members, where the Kubernetes cluster enforces
// NetworkPolicies.
type NetworkPolicySpec struct {
	// Mode is Managed (the default: Quorate makes a NetworkPolicy) or Disabled.
	// +optional
	// +default="Managed"
	Mode NetworkPolicyMode `json:"mode,omitempty"`

	// Clients may reach the client port, beside the cluster's own namespace and Quorate. Unset, everything may; what it
	// can do there is up to its certificate.
	// +optional
	Clients *Peers `json:"clients,omitempty"`

	// Metrics says who may reach the metrics port, which is plain HTTP. Unset, pods of the cluster's own namespace and
	// pods labelled quorate.dev/scrape: "true" in namespaces with that label may.
	// +optional
	Metrics *Peers `json:"metrics,omitempty"`
}

// Peers are pods and addresses, as a NetworkPolicy of Kubernetes names them.
type Peers struct {
	// From are those that may: one of them is enough.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="has(self.ipBlock) != (has(self.namespaceSelector) || has(self.podSelector))",message="each of networkPolicy's from has either an ipBlock or selectors"
	From []networkingv1.NetworkPolicyPeer `json:"from"`
}

// TLSStatus is about the certificates in use.
type TLSStatus struct {
	// Mode is that of spec.tls.
	// +optional
	Mode TLSMode `json:"mode,omitempty"`

	// ClientAuth is None while a member asks clients for no certificate, else Required. It is empty in plain text.
	// +optional
	ClientAuth ClientAuth `json:"clientAuth,omitempty"`

	// Certificates by what they are for: authority, server, peer, operator, client, and `user <name>` for each user
	// that has one.
	// +optional
	// +listType=map
	// +listMapKey=name
	Certificates []CertificateStatus `json:"certificates,omitempty"`
}

// CertificateStatus is one certificate.
type CertificateStatus struct {
	// Name of what it is for.
	Name string `json:"name"`

	// SecretRef holds it.
	// +optional
	SecretRef SecretRef `json:"secretRef,omitzero"`

	// NotAfter is when it expires.
	// +optional
	NotAfter metav1.Time `json:"notAfter,omitzero"`
}
