// Package manifests holds what is applied to a cluster, for quorate install. The folders are kustomizations too.
package manifests

import "embed"

// Files are the kinds, the base installation, what can be added to it, and a Metacontroller.
//
//go:embed crds/*.yaml base/*.yaml components/*/*.yaml metacontroller/*.yaml
var Files embed.FS

// The kustomizations. Kinds come first, and by themselves.
const (
	Kinds          = "crds"
	Base           = "base"
	Metacontroller = "metacontroller"
)

// CertManager is the component for clusters with cert-manager: patches that add to lists.
const CertManager = "components/cert-manager"
