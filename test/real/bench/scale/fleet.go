//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// A fleet is many clusters that look like the one that was recorded. All have its name and namespace, because
// certificates and hashes are made for them; the server tells clusters apart by their UID. Identity, addresses,
// certificates, keys and status are each cluster's own.
type fleet struct {
	parts    []string // text, name of a hole, text, ..., text
	parent   v1beta1.EtcdCluster
	image    string   // of Quorate, as the pods name it
	pods     []string // names, in order
	clusters []*cluster
}

// A cluster of the fleet. The status and what was answered last change with the answers; only one call at a time is
// about it.
type cluster struct {
	values map[string]string // what fills the holes
	shown  map[string][]byte // the members' Secret
	first  int               // number of its first member
	silent bool

	tlsOnce sync.Once
	tls     *tls.Config

	lastStatus, lastChildren []byte
	asked                    time.Time
}

// call is what of a recording has to be understood.
type call struct {
	Parent   json.RawMessage `json:"parent"`
	Children struct {
		Pods    map[string]corev1.Pod    `json:"Pod.v1"`
		Secrets map[string]corev1.Secret `json:"Secret.v1"`
	} `json:"children"`
}

// hole marks, in the text, where a value of the cluster's own goes. JSON text has no such byte.
const hole = "\x00"

// newFleet makes n clusters out of a recording.
func newFleet(file string, n int) (*fleet, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var ordered struct { // as Metacontroller sends it
		Controller json.RawMessage `json:"controller"`
		Parent     json.RawMessage `json:"parent"`
		Children   json.RawMessage `json:"children"`
		Related    json.RawMessage `json:"related"`
		Finalizing bool            `json:"finalizing"`
	}
	if err := json.Unmarshal(raw, &ordered); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if raw, err = json.Marshal(ordered); err != nil { // without spaces
		return nil, err
	}
	var c call
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	f := &fleet{}
	var status struct {
		Status json.RawMessage `json:"status"`
	}
	if err := errors.Join(json.Unmarshal(c.Parent, &f.parent), json.Unmarshal(c.Parent, &status)); err != nil {
		return nil, fmt.Errorf("%s: parent: %w", file, err)
	}
	f.pods = slices.Sorted(maps.Keys(c.Children.Pods))
	if len(f.pods) != len(f.parent.Status.Members) || len(f.pods) == 0 {
		return nil, fmt.Errorf("%s: the cluster is not at rest: %d pods, %d members", file, len(f.pods),
			len(f.parent.Status.Members))
	}
	f.image = c.Children.Pods[f.pods[0]].Spec.InitContainers[0].Image
	f.parts = strings.Split(holes(string(raw), string(f.parent.UID), string(status.Status), c), hole)
	f.clusters = make([]*cluster, n)
	return f, f.make(c, string(status.Status))
}

// holes puts a hole wherever a cluster has something of its own.
func holes(text, uid, status string, c call) string {
	text = strings.Replace(text, `"status":`+status, `"status":`+hole+"status"+hole, 1)
	text = strings.ReplaceAll(text, uid, hole+"uid"+hole)
	addresses := map[string]string{}
	for name, pod := range c.Children.Pods {
		addresses[pod.Status.PodIP] = "ip/" + name
		text = strings.ReplaceAll(text, `"`+pod.Annotations[objects.AnnotationServes]+`"`, `"`+hole+"serves"+hole+`"`)
		text = strings.ReplaceAll(text, `\"`+pod.Annotations[objects.AnnotationServes]+`\"`, `\"`+hole+"serves"+hole+`\"`)
	}
	longestFirst := slices.SortedFunc(maps.Keys(addresses), func(a, b string) int { return len(b) - len(a) })
	for _, address := range longestFirst {
		text = strings.ReplaceAll(text, address, hole+addresses[address]+hole)
	}
	for name, secret := range c.Children.Secrets {
		for key, value := range secret.Data {
			if encoded := base64.StdEncoding.EncodeToString(value); len(encoded) > 16 {
				text = strings.ReplaceAll(text, encoded, hole+"secret/"+name+"/"+key+hole)
			}
		}
	}
	return text
}

// make gives every cluster what is its own, on all cores.
func (f *fleet) make(c call, status string) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	share := runtime.NumCPU()
	for worker := range share {
		wg.Go(func() {
			for i := worker; i < len(f.clusters); i += share {
				made, err := f.cluster(i, c, status)
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				f.clusters[i] = made
			}
		})
	}
	wg.Wait()
	return failed
}

func (f *fleet) cluster(i int, c call, status string) (*cluster, error) {
	made := &cluster{values: map[string]string{"uid": string(uuid.NewUUID()), "status": status}, first: i * len(f.pods)}
	for m, pod := range f.pods {
		made.values["ip/"+pod] = address(made.first + m).String()
	}
	secrets, err := issue(c.Children.Secrets, f.parent.Name)
	if err != nil {
		return nil, err
	}
	for name, data := range secrets {
		for key, value := range data {
			made.values["secret/"+name+"/"+key] = base64.StdEncoding.EncodeToString(value)
		}
	}
	if made.values["status"], err = expiring(status, secrets); err != nil {
		return nil, err
	}
	made.shown = secrets[f.parent.Name+"-server-tls"]
	made.values["serves"] = serves(made.shown, secrets[f.parent.Name+"-peer-tls"])
	return made, nil
}

// expiring is a status that says when these certificates end. Were it another one, no call would find a cluster at
// rest.
func expiring(status string, secrets map[string]map[string][]byte) (string, error) {
	var whole map[string]json.RawMessage
	var tls map[string]json.RawMessage
	var list []v1beta1.CertificateStatus
	if err := errors.Join(json.Unmarshal([]byte(status), &whole), json.Unmarshal(whole["tls"], &tls),
		json.Unmarshal(tls["certificates"], &list)); err != nil {
		return "", fmt.Errorf("status: %w", err)
	}
	for i := range list {
		block, _ := pem.Decode(secrets[list[i].SecretRef.Name][objects.KeyCertificate])
		if block == nil {
			return "", fmt.Errorf("status: the Secret %s has no certificate", list[i].SecretRef.Name)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return "", err
		}
		list[i].NotAfter = metav1.NewTime(c.NotAfter)
	}
	var err error
	for _, part := range []struct {
		of    map[string]json.RawMessage
		key   string
		value any
	}{{tls, "certificates", list}, {whole, "tls", tls}} {
		if part.of[part.key], err = json.Marshal(part.value); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(whole)
	return string(text), err
}

// issue makes certificates and keys like those of the recorded Secrets, valid since an hour, by the recipes of the
// product.
func issue(recorded map[string]corev1.Secret, cluster string) (map[string]map[string][]byte, error) {
	made := map[string]map[string][]byte{}
	authority := defaults.CASecret(cluster)
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(recorded)), func(name string) bool { return name == authority })
	for _, name := range append([]string{authority}, others...) { // who signs comes first
		recipe, err := recipeOf(recorded[name].Data, name == authority, authority)
		if err != nil {
			return nil, fmt.Errorf("the Secret %s: %w", name, err)
		}
		if made[name], err = pki.Make(name, recipe, made); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func recipeOf(data map[string][]byte, isAuthority bool, authority string) (decision.Recipe, error) {
	if data[objects.KeyTokenPrivate] != nil {
		return decision.TokenKeys{}, nil
	}
	block, _ := pem.Decode(data[objects.KeyCertificate])
	if block == nil {
		return nil, errors.New("tls.crt is no certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	begins := c.NotBefore // the call is of that time, and it is not known to be later
	ends := time.Now().Add(c.NotAfter.Sub(c.NotBefore)).Truncate(time.Second)
	if isAuthority {
		return decision.Authority{CommonName: c.Subject.CommonName, NotBefore: begins, NotAfter: ends}, nil
	}
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return decision.Leaf{
		Signer: authority, CommonName: c.Subject.CommonName, Names: names, NotBefore: begins, NotAfter: ends,
		Server: slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth), Client: slices.Contains(c.ExtKeyUsage,
			x509.ExtKeyUsageClientAuth),
	}, nil
}

// serves is the annotation of the same name on the pods: a hash of the certificates that are mounted, as (*view).served
// in package hooks makes it. Were it another one, the first answer would change the pods, and the run would count that
// as a write.
func serves(secrets ...map[string][]byte) string {
	h := fnv.New64a()
	for _, data := range secrets {
		for _, text := range [][]byte{data[objects.KeyCertificate], data[objects.KeyTrust]} {
			for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
				c, err := x509.ParseCertificate(block.Bytes)
				if err != nil {
					continue
				}
				_, _ = h.Write([]byte(pki.Identify(c)))
				_, _ = h.Write([]byte{0})
			}
		}
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// hostile is the namespace of the clusters that are silent.
const hostile = "hostile"

// hush makes the clusters from the nth on silent, and those of one other namespace.
func (f *fleet) hush(n int) {
	for _, c := range f.clusters[n:] {
		c.silent = true
	}
}

// fill writes the call about a cluster.
func (f *fleet) fill(to *bytes.Buffer, c *cluster) {
	f.write(to, c)
	if c.silent {
		text := bytes.ReplaceAll(to.Bytes(), fmt.Appendf(nil, `"namespace":%q`, f.parent.Namespace), fmt.Appendf(nil, `"namespace":%q`, hostile))
		to.Reset()
		to.Write(text)
	}
}

func (f *fleet) write(to *bytes.Buffer, c *cluster) {
	to.Reset()
	for i, part := range f.parts {
		if i%2 == 1 {
			part = c.values[part]
		}
		to.WriteString(part)
	}
}

// address of a member: all of 127.0.0.0/8 is this machine.
func address(member int) net.IP {
	return net.IPv4(127, byte(64+member>>16), byte(member>>8), byte(member))
}

// memberAt is the cluster at an address, and which of its members that is.
func (f *fleet) memberAt(a net.Addr) (*cluster, int, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return nil, 0, fmt.Errorf("%v is no address of TCP", a)
	}
	ip := tcp.IP.To4()
	n := int(ip[1]-64)<<16 | int(ip[2])<<8 | int(ip[3])
	if i := n / len(f.pods); i < len(f.clusters) {
		return f.clusters[i], n % len(f.pods), nil
	}
	return nil, 0, fmt.Errorf("no member has the address %v", ip)
}
