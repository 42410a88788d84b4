package objects

import (
	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secrets' data.
const (
	KeyCertificate         = corev1.TLSCertKey
	KeyPrivate             = corev1.TLSPrivateKeyKey
	KeyTrust               = corev1.ServiceAccountRootCAKey
	KeyPreviousCertificate = "previous.crt"
	KeyPreviousPrivate     = "previous.key"
	KeyTokenPrivate        = "token.key"
	KeyTokenPublic         = "token.pub"
	KeyStream              = "stream.key"
)
