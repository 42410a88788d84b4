package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// expiries are when the certificates of the clusters expire, as a metric: the one with clusters' names among its labels, since whoever is
// woken by it must know where to go. A cluster that was not asked about for 15 minutes is dropped.
type expiries struct {
	mu       sync.Mutex
	clusters map[types.UID]expiry
	now      func() time.Time
}

type expiry struct {
	namespace, name string
	certificates    []v1alpha1.CertificateStatus
	seen            time.Time
}

var expiryMetric = prometheus.NewDesc("quorate_certificate_expiry_timestamp_seconds",
	"When a certificate of a cluster expires, in seconds since 1970, by what it is for.", []string{"namespace", "cluster", "certificate"}, nil)

func (e *expiries) note(c *v1alpha1.EtcdCluster, status *v1alpha1.EtcdClusterStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clusters == nil {
		e.clusters = map[types.UID]expiry{}
	}
	e.clusters[c.UID] = expiry{c.Namespace, c.Name, status.TLS.Certificates, e.now()}
}

func (e *expiries) forget(cluster types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.clusters, cluster)
}

// Describe implements prometheus.Collector.
func (e *expiries) Describe(to chan<- *prometheus.Desc) { to <- expiryMetric }

// Collect implements prometheus.Collector.
func (e *expiries) Collect(to chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := map[[3]string]bool{} // a cluster and its successor of the same name may both be known for a while
	for uid, c := range e.clusters {
		if e.now().Sub(c.seen) > forgetAfter {
			delete(e.clusters, uid)
			continue
		}
		for _, cert := range c.certificates {
			key := [3]string{c.namespace, c.name, cert.Name}
			if told[key] {
				continue
			}
			told[key] = true
			to <- prometheus.MustNewConstMetric(expiryMetric, prometheus.GaugeValue, float64(cert.NotAfter.Unix()), key[:]...)
		}
	}
}
