// Package stores says how a pod comes to a store of snapshots, and what its URL may be: for the Job of a snapshot, and
// for members that restore one.
package stores

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Where a container finds what it needs for that.
const (
	// claimDir is where the claim of a store with the URL file:///folder is mounted: its folder is claimDir/folder.
	claimDir = "/var/run/quorate-store"
	// trustDir holds the authority of the store, keyDir Google's credentials.json, identityDir the identities of
	// age.
	trustDir = "/etc/quorate-store/ca"
	keyDir   = "/etc/quorate-store/credentials"
	// identityDir holds the file identityKey.
	identityDir = "/etc/quorate-store/identity"
	// streamDir holds the keys of a stream.
	streamDir = "/etc/quorate-store/stream"
	// identityKey is the key of a Secret with identities of age.
	identityKey = "identity"
	// googleKey is the key of a Secret with credentials of Google's, googleVariable what Google's
	// tools find that file by.
	googleKey      = "credentials.json"
	googleVariable = "GOOGLE_APPLICATION_CREDENTIALS"
)

// GivenGoogleKey is the file in a container with what a Secret of the namespace has as credentials of Google's: a
// tenant wrote it, where any other file is the choice of the installation.
const GivenGoogleKey = keyDir + "/" + googleKey

// Volumes of pods with a store.
const (
	volumeStore      = "store"
	volumeStoreTrust = "store-ca"
	volumeStoreKey   = "store-credentials"
	volumeIdentity   = "identity"
	volumeStreamKeys = "stream-keys"
)

// Access is what a pod and its container must have to reach a store. What is secret is named
// in it, and never in it: of a Secret the container gets the keys that it has use for, and no
// other.
type Access struct {
	Env     []corev1.EnvVar
	Mounts  []corev1.VolumeMount
	Volumes []corev1.Volume
	// Args of quorate-snapshot snapshot, discard and restore.
	Args []string
	// Labels that the pod must have for the platform to give it an identity.
	Labels map[string]string
}

// AccessTo is what a pod needs for this store; serviceAccount is that of the pod, empty for none. A pod that only reads
// gets a claim read-only.
func AccessTo(store v1beta1.Store, serviceAccount string, readOnly bool) Access {
	url := URLOf(&store)
	a := Access{Args: []string{"--store-url=" + url.String()}}
	if store.Claim != nil {
		a.Args = append(a.Args, "--store-dir="+claimDir)
		a.mount(volumeStore, claimDir, readOnly, corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: store.Claim.Name,
				ReadOnly: readOnly},
		})
	}
	if store.CASecretRef.Name != "" {
		a.Args = append(a.Args, "--store-ca="+trustDir+"/"+objects.KeyTrust)
		a.mount(volumeStoreTrust, trustDir, true, oneKey(store.CASecretRef, objects.KeyTrust))
	}
	if _, err := ParseURL(url.String()); err != nil {
		return a // refused long before; its program refuses it again
	}
	switch secret := credentialsOf(&store); {
	case secret.Name == "":
		// Azure's webhook gives an identity to pods with this label only. Those of Amazon and Google go by the service
		// account alone. All bring a token of their own kind: that of the Kubernetes API is never mounted.
		if serviceAccount != "" && url.Scheme == Azure {
			a.Labels = map[string]string{"azure.workload.identity/use": "true"}
		}
	case url.Scheme == Google:
		a.Env = append(a.Env, corev1.EnvVar{Name: googleVariable, Value: GivenGoogleKey})
		a.mount(volumeStoreKey, keyDir, true, oneKey(secret, googleKey))
	default:
		for _, c := range credentials(url) {
			a.Env = append(a.Env, c.variable(secret.Name))
		}
	}
	return a
}

// variable of a container that gets the key of this Secret. Without a key that is not optional the
// kubelet holds the container back, says which one it lacks, and starts it when the Secret has it.
func (c credential) variable(secret string) corev1.EnvVar {
	from := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: c.key}
	if c.optional {
		from.Optional = new(true)
	}
	return corev1.EnvVar{Name: c.key, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: from}}
}

// credentialsOf is the Secret with the credentials of a store; without a name for none.
func credentialsOf(store *v1beta1.Store) v1beta1.SecretKeyRef {
	switch {
	case store.S3 != nil:
		return v1beta1.SecretKeyRef{Name: store.S3.CredentialsSecretRef.Name}
	case store.Azure != nil:
		return v1beta1.SecretKeyRef{Name: store.Azure.CredentialsSecretRef.Name}
	case store.GCS != nil:
		return store.GCS.CredentialsSecretRef
	}
	return v1beta1.SecretKeyRef{}
}

// Secrets are those that a pod needs for this store.
func Secrets(store *v1beta1.Store) []string {
	return []string{credentialsOf(store).Name, store.CASecretRef.Name}
}

// Identify gives the container the identities of age that decrypt, by the flag --identity.
func (a *Access) Identify(secret v1beta1.SecretKeyRef) {
	a.Args = append(a.Args, "--identity="+identityDir+"/"+identityKey)
	a.mount(volumeIdentity, identityDir, true, oneKey(secret, identityKey))
}

// Believe gives the container the keys of a stream, by the flag --stream-keys.
func (a *Access) Believe(secret v1beta1.SecretKeyRef) {
	a.Args = append(a.Args, "--stream-keys="+streamDir+"/"+objects.KeyStream)
	a.mount(volumeStreamKeys, streamDir, true, oneKey(secret, objects.KeyStream))
}

func (a *Access) mount(name, path string, readOnly bool, source corev1.VolumeSource) {
	a.Volumes = append(a.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	a.Mounts = append(a.Mounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
}

// oneKey is a volume with one key of a Secret as a file. The key is that of the file's name, unless another is named.
func oneKey(secret v1beta1.SecretKeyRef, file string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: secret.Name, DefaultMode: new(int32(0o440)),
		Items: []corev1.KeyToPath{{Key: cmp.Or(secret.Key, file), Path: file}},
	}}
}
