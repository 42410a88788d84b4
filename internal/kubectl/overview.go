package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// What status prints of several clusters, and for programs.

// printTable has a row for each cluster, by what its status knows.
func (a *invocation) printTable(all []*found) {
	head := []string{"NAME", "READY", "VERSION", "LEADER", "STATUS", "AGE"}
	more := []string{"EPOCH", "DB", "CERTIFICATES", "MESSAGE"}
	lines := [][]string{}
	for _, c := range all {
		cells := []string{c.Name, fmt.Sprintf("%d/%d", c.Status.ReadyReplicas, replicas(c.EtcdCluster)),
			cmp.Or(c.Status.Version, c.Spec.Version), c.Status.Leader, c.Status.Rule, lasting(a.now().Sub(
				c.CreationTimestamp.Time))}
		if a.format == "wide" {
			cells = append(cells, fmt.Sprint(c.Status.Epoch), largestDB(c.EtcdCluster), firstExpiry(c.EtcdCluster, a.now()),
				message(c.EtcdCluster))
		}
		lines = append(lines, cells)
	}
	if a.format == "wide" {
		head = append(head, more...)
	}
	lines = slices.Insert(lines, 0, head)
	if a.everywhere {
		lines[0] = slices.Insert(lines[0], 0, "NAMESPACE")
		for i, c := range all {
			lines[i+1] = slices.Insert(lines[i+1], 0, c.Namespace)
		}
	}
	page{a.Out}.columns("", lines)
}

// largestDB is the size of the largest of the members' databases; empty where none is known.
func largestDB(c *v1beta1.EtcdCluster) string {
	largest := int64(0)
	for i := range c.Status.Members {
		largest = max(largest, known(&c.Status.Members[i]).size)
	}
	if largest == 0 {
		return ""
	}
	return size(largest)
}

// firstExpiry is when the first of the certificates expires; empty for none.
func firstExpiry(c *v1beta1.EtcdCluster, now time.Time) string {
	list := c.Status.TLS.Certificates
	if len(list) == 0 {
		return ""
	}
	return expiry(slices.MinFunc(list, func(a, b v1beta1.CertificateStatus) int {
		return a.NotAfter.Compare(b.NotAfter.Time)
	}).NotAfter.Time, now)
}

// message is that of the condition Ready.
func message(c *v1beta1.EtcdCluster) string {
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1beta1.Ready); ready != nil {
		return ready.Message
	}
	return ""
}

// document is what status prints for programs, in one shape for one cluster and for many. It is promised
// (docs/reference/cli.md): fields are added, and none changes.
type document struct {
	Clusters []clusterDocument `json:"clusters"`
}

type clusterDocument struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Created   metav1.Time `json:"created"`
	// Ready, Reason and Message are those of the condition Ready, and Status is the rule, for people.
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason"`
	Status  string `json:"status"`
	Message string `json:"message"`
	Version string `json:"version"`
	Epoch   int64  `json:"epoch"`
	Leader  string `json:"leader"`
	// Voters that the spec asks for, and how many serve.
	Voters      int32 `json:"voters"`
	VotersReady int   `json:"votersReady"`
	// Live: etcd itself has answered just now.
	Live         bool                  `json:"live"`
	Members      []memberDocument      `json:"members"`
	InTheWay     []string              `json:"inTheWay"`
	Attention    []string              `json:"attention"`
	Certificates []certificateDocument `json:"certificates"`
}

type memberDocument struct {
	Name        string      `json:"name"`
	Role        string      `json:"role"`
	Leads       bool        `json:"leads"`
	Ready       bool        `json:"ready"`
	Since       metav1.Time `json:"since,omitzero"`
	Version     string      `json:"version"`
	DBSize      int64       `json:"dbSize"`
	DBSizeInUse int64       `json:"dbSizeInUse"`
	// Lag is unset where the member has not answered now.
	Lag     *int64   `json:"lag,omitempty"`
	Alarms  []string `json:"alarms"`
	Message string   `json:"message"`
}

type certificateDocument struct {
	Name    string      `json:"name"`
	Secret  string      `json:"secret"`
	Expires metav1.Time `json:"expires"`
}

func (a *invocation) printDocument(ctx context.Context, all []*found, ask bool) error {
	d := document{Clusters: []clusterDocument{}}
	for _, c := range all {
		l := &live{}
		if ask {
			l = a.look(ctx, c.EtcdCluster)
		}
		d.Clusters = append(d.Clusters, documentOf(screen{c: c.EtcdCluster, l: l, failure: a.syncFailure(ctx,
			c.EtcdCluster), now: a.now()}))
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err == nil && a.format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s\n", bytes.TrimSpace(text))
	return nil
}

// documentOf has what the screen shows.
func documentOf(s screen) clusterDocument {
	rows := rowsOf(s.c, s.l, s.now)
	ready, leader := votersReady(rows)
	d := clusterDocument{Namespace: s.c.Namespace, Name: s.c.Name, Created: s.c.CreationTimestamp,
		Status: s.c.Status.Rule, Version: cmp.Or(s.c.Status.Version, s.c.Spec.Version), Epoch: s.c.Status.Epoch,
		Leader: leader, Voters: replicas(s.c), VotersReady: ready, Live: s.l.answered(), Members: []memberDocument{},
		InTheWay: whole(s.obstacles()), Attention: whole(s.needsAttention()), Certificates: []certificateDocument{}}
	if c := meta.FindStatusCondition(s.c.Status.Conditions, v1beta1.Ready); c != nil {
		d.Ready = c.Status == metav1.ConditionTrue
		d.Reason = c.Reason
		d.Message = c.Message
	}
	for _, r := range rows {
		m := memberDocument{Name: r.name, Role: r.role, Leads: r.leads, Ready: r.ready, Since: metav1.NewTime(r.since),
			Version: r.version, DBSize: r.size, DBSizeInUse: r.used, Alarms: whole(r.alarms), Message: r.message}
		if lag, err := strconv.ParseInt(r.lag, 10, 64); err == nil {
			m.Lag = &lag
		}
		d.Members = append(d.Members, m)
	}
	for _, c := range s.c.Status.TLS.Certificates {
		d.Certificates = append(d.Certificates, certificateDocument{c.Name, c.SecretRef.Name, c.NotAfter})
	}
	return d
}

// whole is a list that is printed as one when it is empty, too.
func whole(list []string) []string { return append([]string{}, list...) }
