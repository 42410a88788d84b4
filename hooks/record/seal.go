package record

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// AnnotationSeal is what proves that Quorate wrote a record.
const AnnotationSeal = objects.Domain + "seal"

// Who may write ConfigMaps could else write a record, and an epoch that never was would take over. So the edge seals
// each record that it answers with a key of the installation, and says which of those observed have no such seal.

// Seal is the MAC of all that counts of a record. It has the UID, which the API server gives, so that no record of
// before can be put back. One that is only now made has none: see [Seals].
func Seal(key []byte, c *v1beta1.EtcdCluster, cm *corev1.ConfigMap) string {
	said := []string{"record", c.Namespace, c.Name, string(c.UID), cm.Name, string(cm.UID)}
	for _, all := range []map[string]string{cm.Data, objects.OwnKeys(cm.Annotations, nil)} {
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(k string) bool { return k == AnnotationSeal })
		said = append(said, strconv.Itoa(len(keys)))
		for _, k := range keys {
			said = append(said, k, all[k])
		}
	}
	return mac(key, said...)
}

// mac is that of texts, each with its length, in hexadecimal.
func mac(key []byte, texts ...string) string {
	m := hmac.New(sha256.New, key)
	for _, text := range texts {
		_, _ = m.Write([]byte(strconv.Itoa(len(text)) + ":" + text))
	}
	return hex.EncodeToString(m.Sum(nil))
}

// StreamKeys are the keys of the streams of a namespace, each on a line, that follow from those of the installation in
// their order; empty without. They are of the namespace and not of an object in it: a stream is read when its schedule
// and its EtcdCluster are gone.
func StreamKeys(keys [][]byte, namespace string) (lines string) {
	for _, key := range keys {
		lines += mac(key, "streams", namespace) + "\n"
	}
	return lines
}

// Seals says of the records, by name and sorted, which no key of these has sealed as they are, and which have the seal
// with which they were made. That is believed of the record of a number that none had before, and of one that was made
// again, which says nothing. Without a key all are believed.
func Seals(keys [][]byte, c *v1beta1.EtcdCluster, all map[string]*corev1.ConfigMap,
	peers *corev1.Service) (unsealed, fresh []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		n, is := Is(c.Name, all[name])
		if !is || len(keys) == 0 || sealed(keys, c, all[name]) {
			continue
		}
		made := *all[name]
		made.UID = ""
		says, err := Read(&made)
		if err == nil && sealed(keys, c, &made) && (n > Recorded(c, peers) || says.Recreated) {
			fresh = append(fresh, name)
			continue
		}
		unsealed = append(unsealed, name)
	}
	return unsealed, fresh
}

// Recorded is the highest number that the record of an epoch is known to have had, by the peer Service, which may be
// nil, and by the status; 0 for none.
func Recorded(c *v1beta1.EtcdCluster, peers *corev1.Service) (n int) {
	if c.Status.ClusterID != "" {
		n = max(1, int(c.Status.Epoch))
	}
	if peers == nil {
		return n
	}
	return max(n, objects.ReadMark(peers.Annotations[objects.AnnotationRecorded]),
		objects.ReadMark(peers.Annotations[objects.AnnotationEpoch]))
}

func sealed(keys [][]byte, c *v1beta1.EtcdCluster, cm *corev1.ConfigMap) bool {
	seal := []byte(cm.Annotations[AnnotationSeal])
	return slices.ContainsFunc(keys, func(key []byte) bool { return hmac.Equal(seal, []byte(Seal(key, c, cm))) })
}

// Sealed is a record as it is answered: with the seal of the first key. One that is not believed keeps what it has.
func Sealed(keys [][]byte, c *v1beta1.EtcdCluster, cm *corev1.ConfigMap, unsealed []string) *corev1.ConfigMap {
	if _, is := Is(c.Name, cm); !is || len(keys) == 0 || slices.Contains(unsealed, cm.Name) {
		return cm
	}
	with := *cm
	with.Annotations = objects.With(cm.Annotations, AnnotationSeal, Seal(keys[0], c, cm))
	return &with
}
