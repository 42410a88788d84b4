package archive

import (
	"crypto/x509"
	"os"
	"sync"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// trusted is the file whose authorities this process trusts besides the public ones, once it trusts any.
var trusted struct {
	sync.Mutex
	done bool
	file string
}

// trust makes this process trust the public authorities, and those of a file, wherever it speaks TLS without
// authorities of its own: with stores, and with the services that give out credentials for them. An image made from
// scratch has no public ones: Mozilla's are in the binary. The three SDKs have three ways to be told of an authority,
// of which gocloud.dev passes on none; what they share is Go's.
//
// A process uses one store, so it trusts one file: Go sets its roots once.
func trust(file string) error {
	trusted.Lock()
	defer trusted.Unlock()
	if trusted.done {
		if file != trusted.file {
			return failure(Failed, nil, "this process trusts the authorities of %q already: a store with those of %q "+
				"needs one of its own", trusted.file, file)
		}
		return nil
	}
	var more []byte
	if file != "" {
		var err error
		if more, err = os.ReadFile(file); err != nil {
			return failure(Failed, err, "the store's authority can't be read")
		}
	}
	pool, err := x509.SystemCertPool()
	if err != nil || pool.Equal(x509.NewCertPool()) {
		pool = public()
	}
	if file != "" {
		if !pool.AppendCertsFromPEM(more) {
			return failure(Failed, nil, "the file %s holds no certificate in PEM: it must be the authority that "+
				"signs the store's", file)
		}
		// Amazon's SDK would trust only the authorities of a file that this names.
		if err := os.Unsetenv("AWS_CA_BUNDLE"); err != nil {
			return failure(Failed, err, "the store's authority can't be trusted")
		}
	}
	// Fallback roots count only where there are no others, unless this says so (crypto/x509.SetFallbackRoots).
	if err := os.Setenv("GODEBUG", join(os.Getenv("GODEBUG"), "x509usefallbackroots=1")); err != nil {
		return failure(Failed, err, "the store's authority can't be trusted")
	}
	x509.SetFallbackRoots(pool)
	trusted.done = true
	trusted.file = file
	return nil
}

func join(settings, setting string) string {
	if settings == "" {
		return setting
	}
	return settings + "," + setting
}

// public are Mozilla's authorities. The package fallback itself would read them at each start of the binary: 1.2 ms
// for every command.
func public() *x509.CertPool {
	pool := x509.NewCertPool()
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			continue
		}
		if root.Constraint == nil {
			pool.AddCert(certificate)
			continue
		}
		pool.AddCertWithConstraint(certificate, root.Constraint)
	}
	return pool
}
