// Package manifests holds what is applied to a cluster, for quorate install. The folders are kustomizations too.
package manifests

import "embed"

// Files are the kinds, the base installation, and what can be added to it.
//
//go:embed crds/*.yaml base/*.yaml components/*/*.yaml
var Files embed.FS

// Folders are the kustomizations of manifests/default, in its order.
var Folders = []string{"crds", "base"}

// CertManager is the component for clusters with cert-manager: patches that add to lists.
const CertManager = "components/cert-manager"
