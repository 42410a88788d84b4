package stores

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

var storeAccesses = map[string]struct {
	store          v1beta1.Store
	serviceAccount string
	args           string
	volumes        string
	env            string
	label          string
}{
	"a claim": {
		store: v1beta1.Store{Claim: &v1beta1.ClaimStore{Name: "backups", Path: "nightly"}},
		args:  "--store-url=file:///nightly --store-dir=/var/run/quorate-store", volumes: "store",
	},
	"S3 with credentials and an authority of its own": {
		store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "backups", Prefix: "etcd", Region: "eu-west-1",
			CredentialsSecretRef: v1beta1.SecretRef{Name: "keys"}}, CASecretRef: v1beta1.SecretKeyRef{Name: "trust"}},
		args:    "--store-url=s3://backups/etcd?region=eu-west-1 --store-ca=/etc/quorate-store/ca/ca.crt",
		volumes: "store-ca",
		env:     "AWS_ACCESS_KEY_ID=keys AWS_SECRET_ACCESS_KEY=keys AWS_SESSION_TOKEN=keys?",
	},
	"Azure with credentials": {
		store: v1beta1.Store{Azure: &v1beta1.AzureStore{Container: "backups", Prefix: "etcd",
			CredentialsSecretRef: v1beta1.SecretRef{Name: "keys"}}},
		args: "--store-url=azblob://backups/etcd",
		env: "AZURE_STORAGE_ACCOUNT=keys AZURE_STORAGE_KEY=keys? AZURE_STORAGE_SAS_TOKEN=keys? AZURE_TENANT_ID=keys? " +
			"AZURE_CLIENT_ID=keys? AZURE_CLIENT_SECRET=keys?",
	},
	"Azure with an account in the URL": {
		store: v1beta1.Store{Azure: &v1beta1.AzureStore{Container: "backups", Prefix: "etcd", StorageAccount: "shop",
			CredentialsSecretRef: v1beta1.SecretRef{Name: "keys"}}},
		args: "--store-url=azblob://backups/etcd?storage_account=shop",
		env: "AZURE_STORAGE_ACCOUNT=keys? AZURE_STORAGE_KEY=keys? AZURE_STORAGE_SAS_TOKEN=keys? " +
			"AZURE_TENANT_ID=keys? AZURE_CLIENT_ID=keys? AZURE_CLIENT_SECRET=keys?",
	},
	"a URL that was let through": {
		store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b", Prefix: "$(tls.key)",
			CredentialsSecretRef: v1beta1.SecretRef{Name: "keys"}}},
		args: "--store-url=s3://b/$(tls.key)",
	},
	"Google's credentials are a file": {
		store: v1beta1.Store{GCS: &v1beta1.GCSStore{Bucket: "backups", Prefix: "etcd",
			CredentialsSecretRef: v1beta1.SecretKeyRef{Name: "keys"}}},
		args: "--store-url=gs://backups/etcd", volumes: "store-credentials",
		env: "GOOGLE_APPLICATION_CREDENTIALS=",
	},
	"the platform's identity": {
		store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "backups", Prefix: "etcd"}}, serviceAccount: "backup",
		args: "--store-url=s3://backups/etcd",
	},
	"the identity of Azure wants a label": {
		store:          v1beta1.Store{Azure: &v1beta1.AzureStore{Container: "backups", Prefix: "etcd"}},
		serviceAccount: "backup",
		args:           "--store-url=azblob://backups/etcd",
		label:          "azure.workload.identity/use",
	},
}

func TestAccess(t *testing.T) {
	for name, test := range storeAccesses {
		t.Run(name, func(t *testing.T) {
			a := AccessTo(test.store, test.serviceAccount, false)
			if got := strings.Join(a.Args, " "); got != test.args {
				t.Errorf("args %s, want %s", got, test.args)
			}
			var volumes []string
			for _, v := range a.Volumes {
				volumes = append(volumes, v.Name)
			}
			if got := strings.Join(volumes, " "); got != test.volumes {
				t.Errorf("volumes %s, want %s", got, test.volumes)
			}
			if got := secretsNamed(a.Env); got != test.env {
				t.Errorf("environment %s, want %s", got, test.env)
			}
			if _, set := a.Labels[test.label]; len(a.Labels) > 0 && !set || test.label != "" && !set {
				t.Errorf("labels %v, want %q", a.Labels, test.label)
			}
			if len(a.Mounts) != len(a.Volumes) {
				t.Errorf("%d mounts of %d volumes", len(a.Mounts), len(a.Volumes))
			}
		})
	}
}

// secretsNamed are variables with the Secrets that they are of; one with ? may be missing there.
func secretsNamed(env []corev1.EnvVar) string {
	var all []string
	for _, e := range env {
		named := ""
		if e.ValueFrom != nil {
			named = e.ValueFrom.SecretKeyRef.Name
			if of := e.ValueFrom.SecretKeyRef.Optional; of != nil && *of {
				named += "?"
			}
		}
		all = append(all, e.Name+"="+named)
	}
	return strings.Join(all, " ")
}

func TestWhoOnlyReadsGetsTheClaimReadOnly(t *testing.T) {
	a := AccessTo(v1beta1.Store{Claim: &v1beta1.ClaimStore{Name: "backups", Path: "x"}}, "", true)
	a.Identify(v1beta1.SecretKeyRef{Name: "secret"})
	if !a.Mounts[0].ReadOnly || !a.Volumes[0].PersistentVolumeClaim.ReadOnly {
		t.Errorf("the claim can be written: %+v", a)
	}
	if !slices.Contains(a.Args, "--identity=/etc/quorate-store/identity/identity") ||
		a.Volumes[1].Secret.SecretName != "secret" {
		t.Errorf("the identity is not given: %+v", a)
	}
}
