// Package manifests holds what is applied to a cluster, for quorate install. The folders are kustomizations too.
package manifests

import "embed"

// Files are the kinds, the base installation, what can be added to it, and Metacontroller for those who have none.
//
//go:embed crds/*.yaml base/*.yaml components/*/*.yaml metacontroller/*.yaml
var Files embed.FS

// Folders are the kustomizations of manifests/default, in its order.
var Folders = []string{"crds", "base"}

// Metacontroller is the kustomization of the Metacontroller that the tests run with.
const Metacontroller = "metacontroller"

// CertManager is the component for clusters with cert-manager: patches that add to lists.
const CertManager = "components/cert-manager"
