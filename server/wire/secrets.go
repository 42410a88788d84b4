package wire

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// A secretReader reads the Secrets of a call: what is public about them into the call's children and related objects,
// the rest into its secrets and related. Of each it reads the keys that a decision can ask for, and reads over the
// others.
type secretReader struct {
	ctx  context.Context //nolint:containedctx // of one call, as the reader is
	call *ClusterCall
	body []byte
}

// mostOthers is how many keys of others are kept in a Secret of the cluster's own. They are answered as they were
// observed, so that Metacontroller, which may have noted them as ours, leaves them there.
const mostOthers = 64

type incomingSecret struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Type corev1.SecretType
	Data map[string][]byte
}

// children reads the cluster's own Secrets.
func (s *secretReader) children(in *source, where string) error {
	keys, err := s.asked()
	if err != nil {
		return err
	}
	r := s.call
	r.Children.Secrets = map[string]*observation.Secret{}
	r.secrets = map[string]map[string][]byte{}
	return members(in, where, func(key string) error {
		asked := func(k []byte) bool { return keys.Own[string(k)] || keys.Named[nameIn(key)][string(k)] }
		return s.read(in, member(where, key), asked, mostOthers, r.Children.Secrets, r.secrets)
	})
}

// others reads the related Secrets. Of one whose name nothing asks for only the labels are read.
func (s *secretReader) others(in *source, where string) error {
	keys, err := s.asked()
	if err != nil {
		return err
	}
	r := s.call
	r.Related.Secrets = map[string]*observation.Secret{}
	r.related = map[string]map[string][]byte{}
	return members(in, where, func(key string) error {
		field := member(where, key)
		named := keys.Named[nameIn(key)]
		if named == nil {
			return r.labelled.read(in, field)
		}
		return s.read(in, field, func(k []byte) bool { return named[string(k)] }, 0, r.Related.Secrets, r.related)
	})
}

// nameIn is the name in an object's key, which may carry the namespace.
func nameIn(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// asked are the keys that a decision about the parent can ask for. Metacontroller sends the parent first; where it
// comes later, it is looked for.
func (s *secretReader) asked() (observation.SecretKeys, error) {
	cluster := s.call.Cluster
	if cluster == nil {
		ahead, err := newSource(bytes.NewBuffer(s.body))
		if err != nil {
			return observation.SecretKeys{}, err
		}
		if cluster, err = parentIn(ahead); err != nil {
			return observation.SecretKeys{}, err
		}
	}
	if cluster == nil { // which is said when all is read
		return observation.SecretKeys{}, nil
	}
	return defaults.AskedKeys(cluster), nil
}

// read reads one Secret.
func (s *secretReader) read(
	in *source, field string, asked func(key []byte) bool, others int,
	all map[string]*observation.Secret, data map[string]map[string][]byte,
) error {
	var w incomingSecret
	err := members(in, field, func(key string) error {
		switch key {
		case "apiVersion":
			return value(in, field+"."+key, &w.APIVersion)
		case "kind":
			return value(in, field+"."+key, &w.Kind)
		case "metadata":
			return value(in, field+"."+key, &w.ObjectMeta)
		case "type":
			return value(in, field+"."+key, &w.Type)
		case "data":
			return w.pick(in, field+"."+key, asked, others)
		}
		return skip(in, field+"."+key)
	})
	if err != nil {
		return err
	}
	if err := identified(field, w.TypeMeta, &w.ObjectMeta, "v1", "Secret"); err != nil {
		return err
	}
	if _, twice := all[w.Name]; twice {
		return thereTwice(field)
	}
	data[w.Name] = w.Data
	secret := &corev1.Secret{TypeMeta: w.TypeMeta, ObjectMeta: w.ObjectMeta, Type: w.Type, Data: w.Data}
	all[w.Name], err = pki.ReadFor(s.ctx, w.Namespace, in.turn, secret)
	if errors.Is(err, context.DeadlineExceeded) {
		return Refuse(http.StatusServiceUnavailable, "the time of the call was over before %s was read: "+
			"what its Secrets hold takes long to verify; what was read is remembered, so ask again", field)
	}
	return err
}

// pick reads the keys that are asked for, and some others.
func (w *incomingSecret) pick(in *source, field string, asked func(key []byte) bool, others int) error {
	if in.PeekKind() == jsontext.KindNull {
		return skip(in, field)
	}
	w.Data = map[string][]byte{}
	return membersOf(in, field, func(key []byte) error {
		if !asked(key) {
			if others == 0 {
				return skip(in, field)
			}
			others--
		}
		name := string(key)
		var content []byte
		if err := value(in, field+"."+name, &content); err != nil {
			return err
		}
		w.Data[name] = content
		return nil
	})
}
