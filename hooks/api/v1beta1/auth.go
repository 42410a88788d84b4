package v1beta1

// AuthSpec is who may do what in etcd: etcd's own users and roles. While it is absent, Quorate leaves them as they are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.users) || self.users.all(u, !has(u.roles) || u.roles.all(r, has(self.roles) && self.roles.exists(x, x.name == r)))",message="auth.users[].roles names a role that auth.roles does not declare; declare it there, or correct the name"
type AuthSpec struct {
	// Enabled makes etcd ask every client who it is. With false, every client that reaches etcd may do everything;
	// Quorate makes the declared users and roles all the same, so that you can prepare them.
	// +required
	Enabled bool `json:"enabled"`

	// RootPasswordSecretRef holds the password of etcd's user root, under the key password unless it names another. The
	// Secret needs the label etcd.quorate.dev/cluster: <name of this EtcdCluster>. Unset, Quorate generates one in the
	// Secret `<cluster>-user.root`. Quorate itself never needs it.
	// +optional
	RootPasswordSecretRef *SecretKeyRef `json:"rootPasswordSecretRef,omitempty"`

	// Prune deletes users and roles that are not declared here and that Quorate did not make. The user and the role
	// root always stay.
	// +optional
	Prune bool `json:"prune,omitempty"`

	// Roles by name. A declared role permits exactly what is declared: Quorate takes other permissions from it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Roles []RoleSpec `json:"roles,omitempty"`

	// Users by name. A declared user has exactly the declared roles: Quorate takes others from it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Users []UserSpec `json:"users,omitempty"`
}

// RoleSpec is a role and what it permits.
type RoleSpec struct {
	// Name of the role in etcd.
	// +required
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="a role's name has lower-case letters, digits, '-' and '.', and begins and ends with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self != 'root'",message="the role root is reserved by etcd and permits everything; choose another name"
	Name string `json:"name"`

	// Permissions of the role. Without any, it permits nothing.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Permissions []Permission `json:"permissions,omitempty"`
}

// Permission is an access to a key, to all keys with a prefix, or to a range of keys.
//
// +kubebuilder:validation:XValidation:rule="[has(self.key), has(self.prefix), has(self.range)].filter(x, x).size() == 1",message="a permission needs exactly one of key, prefix and range"
type Permission struct {
	// Access is Read, Write or ReadWrite. Deleting is writing, watching is reading.
	// +required
	Access Access `json:"access"`

	// Key is a single key, such as /settings.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key,omitempty"`

	// Prefix is all keys that begin with it, such as /orders/. The empty prefix is all keys.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Prefix *string `json:"prefix,omitempty"`

	// Range is all keys from one key up to another, without that one.
	// +optional
	Range *KeyRange `json:"range,omitempty"`
}

// Access is a kind of permission.
// +kubebuilder:validation:Enum=Read;Write;ReadWrite
type Access string

const (
	// Read is to get and to watch.
	Read Access = "Read"
	// Write is to put and to delete.
	Write Access = "Write"
	// ReadWrite is both.
	ReadWrite Access = "ReadWrite"
)

// KeyRange is the keys from one to another, in the order of their bytes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.to) || self.from < self.to",message="the range is empty: to must be after from; remove to for all keys from there on"
type KeyRange struct {
	// From is the first key of the range.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	From string `json:"from"`

	// To is the first key after the range. Unset, the range has no end.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	To string `json:"to,omitempty"`
}

// Credential is what a user proves itself by.
// +kubebuilder:validation:Enum=Password;Certificate
type Credential string

const (
	// CredentialPassword is a password, in a Secret.
	CredentialPassword Credential = "Password"
	// CredentialCertificate is a client certificate with the user's name. The user has no password.
	CredentialCertificate Credential = "Certificate"
)

// UserSpec is a user and its roles.
//
// +kubebuilder:validation:XValidation:rule="!has(self.passwordSecretRef) || !has(self.credential) || self.credential == 'Password'",message="a user with the credential Certificate has no password; remove passwordSecretRef, or set credential to Password"
type UserSpec struct {
	// Name of the user in etcd, and the common name of its certificate.
	// +required
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="a user's name has lower-case letters, digits, '-' and '.', and begins and ends with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self != 'root'",message="the user root always exists; its password is in auth.rootPasswordSecretRef"
	Name string `json:"name"`

	// Roles of the user, from auth.roles. Without any, it may read and write no key.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=40
	Roles []string `json:"roles,omitempty"`

	// Credential is Password (the default) or Certificate. Quorate makes the Secret: `<cluster>-user.<name>` with a
	// generated password under the key `password`, or `<cluster>-client.<name>` with a client certificate. In the TLS
	// mode Secrets you make that certificate.
	// +optional
	// +default="Password"
	Credential Credential `json:"credential,omitempty"`

	// PasswordSecretRef holds the user's password instead, under the key password unless it names another: 1 to 72
	// bytes, without a line break. The Secret needs the label etcd.quorate.dev/cluster: <name of this EtcdCluster>. A
	// change there changes the password in etcd.
	// +optional
	PasswordSecretRef *SecretKeyRef `json:"passwordSecretRef,omitempty"`
}

// AuthStatus is what Quorate last did about users and roles in etcd.
type AuthStatus struct {
	// ClusterID of the etcd in which that was done. Another one, as after a restore, has the users, roles and passwords
	// of its data, so that everything is applied there again.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// Enabled is whether etcd asks every client who it is.
	// +optional
	Enabled bool `json:"enabled"`

	// Roles that Quorate keeps, by name. It deletes one that is no longer declared.
	// +optional
	// +listType=set
	Roles []string `json:"roles,omitempty"`

	// Users that Quorate keeps, root among them. It deletes one, but never root, that is no longer declared.
	// +optional
	// +listType=map
	// +listMapKey=name
	Users []UserStatus `json:"users,omitempty"`

	// DeletedUsers and DeletedRoles were deleted because they are no longer declared, those of last at the end. Data
	// from before may bring them back; then they are deleted again.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	DeletedUsers []string `json:"deletedUsers,omitempty"`

	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	DeletedRoles []string `json:"deletedRoles,omitempty"`
}

// UserStatus is a user that Quorate keeps in etcd.
type UserStatus struct {
	// Name of the user.
	Name string `json:"name"`

	// PasswordVersion is the version of the Secret whose password the user has, or `certificate` for a user without a
	// password. It is empty until the user is made.
	// +optional
	PasswordVersion string `json:"passwordVersion,omitempty"`
}
